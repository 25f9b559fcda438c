"""What the tests of the screen share: the tour's trace, an app that is driven by keys, and its text."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from textual.pilot import Pilot

from tinycb.tracing import TraceReader
from tinycb.tui.app import Visualizer
from tinycb.tui.look import Look
from tinycb.tui.panels import DRAWINGS
from tinycb.tui.screen import MainScreen
from tinycb.tui.session import Session

LOOK = Look("dark")
NAMES = ("timeline", "batch", "why", "requests", "mask", "blocks", "budget", "place")


class Driver:
    """A running app: `press` keys, and look at its screen and its session when all of it has settled."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot
        self.app = pilot.app

    @property
    def screen(self) -> MainScreen:
        return next(s for s in reversed(self.app.screen_stack) if isinstance(s, MainScreen))

    @property
    def session(self) -> Session:
        return self.screen.session

    async def settle(self) -> None:
        for _ in range(500):
            await self.pilot.pause()
            if any(isinstance(s, MainScreen) for s in self.app.screen_stack) and self.screen.is_settled:
                break
            await self.pilot.pause(0.005)
        else:
            raise AssertionError("the screen does not settle")
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        names = {" ": "space", ":": "colon", "<": "less_than_sign", ">": "greater_than_sign"}
        await self.press(*(names.get(character, character) for character in text))

    @property
    def text(self) -> str:
        """The screen as it is, a line a row, trailing blanks left out."""
        width, height = self.app.size
        console = Console(
            width=width,
            height=height,
            file=io.StringIO(),
            force_terminal=True,
            record=True,
            legacy_windows=False,
        )
        console.print(self.app.screen._compositor.render_update(full=True))
        lines = console.export_text(styles=False).splitlines()
        return "\n".join(line.rstrip() for line in lines[:height]) + "\n"

    @property
    def message(self) -> str:
        return self.text.splitlines()[-1].strip()

    def panel_text(self, name: str) -> str:
        """What a panel shows, without its border."""
        panel = self.screen.panels[name]
        return "\n".join(panel.render_line(y).text.rstrip() for y in range(panel.content_size.height))


@asynccontextmanager
async def running(app: Visualizer, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Driver]:
    async with app.run_test(size=size) as pilot:
        driver = Driver(pilot)
        await driver.settle()
        yield driver


@asynccontextmanager
async def opened(path: Path, size: tuple[int, int] = (120, 40), look: str = "dark") -> AsyncIterator[Driver]:
    """The app on a trace."""
    with TraceReader(path) as reader:
        async with running(Visualizer(Session(reader), look), size) as driver:
            yield driver


def drawing(name: str):
    return next(d for d in DRAWINGS if d.name == name)()


def whole(session: Session) -> Session:
    while not session.is_read:
        session.work(1)
    return session
