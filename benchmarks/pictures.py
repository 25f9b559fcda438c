"""Draws the README's pictures of the visualizer: the screen itself, on the built-in tour, dark and light.

    python -m benchmarks.pictures [FOLDER]        default: docs

The tour is the same to the last token wherever it runs, and so are the pictures, but for the line numbers of
the sources that they show. A test holds the stored ones against what is drawn now.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tinycb.tracing import TraceReader
from tinycb.tui.app import Visualizer
from tinycb.tui.compare import CompareApp
from tinycb.tui.picture import screen_svg
from tinycb.tui.screen import MainScreen
from tinycb.tui.session import Session
from tinycb.workloads.tour import write_tour

__all__ = ["LOOKS", "VIEWS", "View", "draw", "file_name"]

LOOKS = ("dark", "light")
Sessions = dict[str, Session]  # of the tour, by policy


@dataclass(frozen=True)
class View:
    """name: of the file. size: columns and lines. step, selection, keys: how one gets there."""

    name: str
    title: str
    size: tuple[int, int]
    step: int
    selection: str
    keys: tuple[str, ...]
    app: Callable[[Sessions, str], Visualizer]


def _one(sessions: Sessions, look: str) -> Visualizer:
    return Visualizer(sessions["chunked"], look)


def _two(sessions: Sessions, look: str) -> Visualizer:
    names = ["static", "chunked"]
    return CompareApp([sessions[name] for name in names], names, look)


VIEWS = (
    View(
        "tui",
        "All panels at the step in which D starts with twelve of its tokens in the prefix cache",
        (120, 40),
        11,
        "D:13",
        (),
        _one,
    ),
    View(
        "tui-mask",
        "The mask of a step: a decode of B, a chunk of D behind its history, and the first two tokens of E",
        (80, 19),
        16,
        "D:18",
        ("5", "z"),
        _one,
    ),
    View(
        "tui-compare",
        "Static and chunked batching of the same requests, side by side at step 16",
        (130, 46),
        16,
        "D",
        (),
        _two,
    ),
)


def file_name(view: View, look: str) -> str:
    return f"{view.name}{'' if look == 'dark' else f'-{look}'}.svg"


def draw() -> Iterator[tuple[View, str, str]]:
    """Each view in each look, as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        traces = {name: write_tour(Path(folder), name) for name in ("static", "chunked")}
        for view in VIEWS:
            for look in LOOKS:
                yield view, look, asyncio.run(_draw(view, look, traces))


async def _draw(view: View, look: str, traces: dict[str, Path]) -> str:
    readers = {name: TraceReader(path) for name, path in traces.items()}
    app = view.app({name: Session(reader) for name, reader in readers.items()}, look)
    try:
        async with app.run_test(size=view.size) as pilot:
            while not isinstance(app.screen, MainScreen):
                await pilot.pause()
            screen = app.screen
            screen.session.go(view.step)
            screen.session.select(view.selection)
            screen.ask_for_drawing()
            await pilot.press(*view.keys)
            while not screen.is_settled:
                await pilot.pause(0.01)
            await pilot.pause()
            return screen_svg(screen, app.look, view.title)
    finally:
        for reader in readers.values():
            reader.close()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    for view, look, svg in draw():
        path = folder / file_name(view, look)
        path.write_text(svg, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
