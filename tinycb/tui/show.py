"""The panels as plain text, for pipes, diffs and screen readers: the same drawings, without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from tinycb.tui.drawing import Drawing, View
from tinycb.tui.line import Line
from tinycb.tui.panels import DRAWINGS

__all__ = ["PANELS", "Lines", "panel_lines", "step_lines"]

PANELS = tuple(drawing.name for drawing in DRAWINGS)
TALLEST = 400  # lines of a panel


def panel_lines(view: View, name: str, width: int) -> Iterator[Line]:
    """A panel, as tall as its content, below a heading with its note."""
    drawing: Drawing = next(d for d in DRAWINGS if d.name == name)()
    drawing.update(view, width, TALLEST)
    height = min(TALLEST, drawing.extent[1])
    drawing.update(view, width, max(1, height))
    left = 0
    anchor = drawing.anchor()
    if anchor is not None and drawing.extent[0] > width:
        left = max(0, min(anchor[0] - width // 2, drawing.extent[0] - width))
    heading = Line(width, view.look.text)
    heading.put(0, f"── {drawing.title} ".ljust(width, "─"), view.look.label)
    yield heading
    for y in range(height):
        yield drawing.line(y, left, 0)
    note = drawing.note()
    if note:
        line = Line(width, view.look.dim)
        line.put(0, note, view.look.dim)
        yield line


def step_lines(view: View, names: Iterable[str], width: int) -> Iterator[Line]:
    """Several panels, one below the other, an empty line between them."""
    for number, name in enumerate(names):
        if number:
            yield Line(width, view.look.text)
        yield from panel_lines(view, name, width)


class Lines:
    """Lines for a rich console, trailing blanks left out."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            width = len(line.plain)
            used = 0
            for segment in line.segments():
                text = segment.text[: max(0, width - used)]
                used += len(segment.text)
                if text:
                    yield Segment(text, segment.style)
            yield Segment.line()
