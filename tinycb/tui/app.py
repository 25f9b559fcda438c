"""The program: themes, the command palette, and the screen it opens with."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable

from textual.app import App, SystemCommand
from textual.screen import Screen
from textual.theme import Theme

from tinycb.tui.history import EVENTS
from tinycb.tui.keys import KEYS
from tinycb.tui.look import Look
from tinycb.tui.screen import MainScreen
from tinycb.tui.session import Session

__all__ = ["Visualizer", "collect_nothing"]


def _theme(name: str) -> Theme:
    colours = Look(name).colours
    return Theme(
        name=f"tinycb-{name}",
        primary=colours["accent"],
        background=colours["background"],
        surface=colours["panel"],
        panel=colours["panel"],
        foreground=colours["text"],
        accent=colours["accent"],
        warning=colours["warn"],
        error=colours["bad"],
        success=colours["good"],
        dark=name == "dark",
    )


def collect_nothing() -> None:
    """Let Python look for no garbage: nothing here refers to itself in circles, neither a drawing nor a step.

    A look through the objects of a few seeks would cost as much as ten drawings.
    """
    gc.freeze()
    gc.disable()


class Visualizer(App[None]):
    """Shows a session. look: "dark", "light" or "plain"; NO_COLOR makes it plain."""

    TITLE = "tinycb"
    BINDINGS = []  # noqa: RUF012  the keys are in keys.py
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, session: Session, look: str = "dark") -> None:
        if os.environ.get("NO_COLOR"):
            look = "plain"
        self.look = Look(look)
        super().__init__(ansi_color=look == "plain")
        self.session = session
        self.failure: Exception | None = None  # what broke the screen; the caller says so in one line
        self.register_theme(_theme("dark"))
        self.register_theme(_theme("light"))
        self.theme = "tinycb-light" if look == "light" else "tinycb-dark"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        colours = self.look.colours
        return {
            "panel-edge": colours["faint"],
            "panel-focus": colours["accent"],
            "panel-title": colours["text"],
            "panel-note": colours["dim"],
            "panel-text": colours["text"],
            "panel-back": colours["background"],
            "bar-back": colours["cursor"],
        }

    def _handle_exception(self, error: Exception) -> None:
        """Leave the terminal as it was, without pages of traceback, unless they are asked for."""
        if self.is_headless or os.environ.get("TINYCB_TRACEBACK"):
            super()._handle_exception(error)
            return
        self.failure = error
        self.exit(return_code=1)

    def on_mount(self) -> None:
        self.push_screen(self.main_screen())

    def main_screen(self) -> Screen[None]:
        return MainScreen(self.session, self.look)

    def switch_look(self, mode: str) -> None:
        """Another theme, at once."""
        self.look = Look(mode)
        self.theme = f"tinycb-{mode}"
        self.refresh_css(animate=False)
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen):
                screen.look = self.look
                screen.ask_for_drawing()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every key as a command with a name, a command for each kind of event, and the themes."""
        main = next((s for s in self.screen_stack if isinstance(s, MainScreen)), None)
        if main is None:
            return
        for key in KEYS:
            if key.action != "command_palette":
                yield SystemCommand(
                    key.text[:1].upper() + key.text[1:], f"key {key.shown}", lambda a=key.action: main.do(a)
                )
        for kind in EVENTS:
            yield SystemCommand(
                f"Next {kind}", f"n and N then go to every {kind}", lambda k=kind: self._event(main, k)
            )
        if self.look.mode != "plain":
            yield SystemCommand("Light theme", "dark letters on white", lambda: self.switch_look("light"))
            yield SystemCommand("Dark theme", "light letters on black", lambda: self.switch_look("dark"))

    def _event(self, main: MainScreen, kind: str) -> None:
        self.session.kind = kind
        main.do("event(1)")
