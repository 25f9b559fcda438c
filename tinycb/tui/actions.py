"""What each key of `keys.py` does on the main screen: an action is a method, and no method draws.

Next: `screen.py`, which finds the action of a key, runs it, and draws.
"""

from __future__ import annotations

from pathlib import Path

from textual.screen import Screen
from textual.timer import Timer

from tinycb.tui.command_line import CommandLine
from tinycb.tui.help import HelpScreen
from tinycb.tui.look import Look
from tinycb.tui.panel_widget import PanelWidget
from tinycb.tui.picture import screen_svg
from tinycb.tui.session import Session

__all__ = ["Actions"]


class Actions(Screen[None]):
    """The screen's actions. current: the panel that the keys are for. front: its name."""

    session: Session
    look: Look
    panels: dict[str, PanelWidget]
    current: PanelWidget
    front: str
    mode: str
    _waiting_for: str
    _play_timer: Timer

    def arrange_panels(self) -> None:
        """Give every panel its place."""
        raise NotImplementedError

    def _tick(self) -> None:
        raise NotImplementedError

    def do_toggle(self) -> None:
        self.session.toggle()
        self._play_timer.reset()

    def do_step(self, delta: int) -> None:
        self.session.step(delta)

    def do_first(self) -> None:
        self.session.step(-self.session.num_steps)

    def do_last(self) -> None:
        self.session.go_to_end()

    def do_event(self, direction: int) -> None:
        self.session.to_event(direction)

    def do_next_kind(self) -> None:
        self.session.next_kind()

    def do_request(self, delta: int) -> None:
        self.session.choose_request(delta)

    def do_zoom(self) -> None:
        self.session.zoomed = not self.session.zoomed

    def do_faster(self, direction: int) -> None:
        self.session.faster(direction)
        self._play_timer.stop()
        self._play_timer = self.set_interval(1 / self.session.speed, self._tick)

    def do_ask_step(self) -> None:
        self.query_one(CommandLine).ask(":")

    def do_ask_condition(self) -> None:
        condition = self.session.condition
        self.query_one(CommandLine).ask("b", condition.text if condition else "")

    def do_mark(self) -> None:
        self._waiting_for = "m"
        self.session.message = "m: a letter for this step"

    def do_to_mark(self) -> None:
        self._waiting_for = "'"
        self.session.message = (
            f"': the letter of a mark ({' '.join(sorted(self.session.marks)) or 'none is set'})"
        )

    def do_inside(self) -> None:
        self.current.take_key("enter")

    def do_escape(self) -> None:
        self.session.cancel()

    def do_panel(self, direction: int) -> None:
        names = list(self.panels)
        self.do_panel_number((names.index(self.front) + direction) % len(names) + 1)

    def do_panel_number(self, number: int) -> None:
        names = list(self.panels)
        if number > len(names):
            return
        self.front = names[number - 1]
        self.current.leave()
        self.current = self.panels[self.front]
        if self.mode == "tabs":
            self.arrange_panels()
        self.set_focus(self.current)

    def do_align(self) -> None:
        self.session.message = "t aligns two runs that are compared: tinycb tui --compare A B"

    def do_difference(self) -> None:
        self.session.message = "d finds where two runs differ that are compared: tinycb tui --compare A B"

    def do_save(self) -> None:
        step = self.session.source.steps[self.session.index]
        path = Path(f"tinycb-step-{step}.svg")
        model = self.session.header.get("model", "")
        try:
            path.write_text(
                screen_svg(self, self.look, f"Step {step} of {model} in tinycb"), encoding="utf-8"
            )
        except OSError as error:
            self.session.message = f"cannot write {path}: {error.strerror or error}"
        else:
            self.session.message = f"saved as {path}"

    def do_help(self) -> None:
        self.app.push_screen(HelpScreen(self.current.drawing, self.look))

    def do_quit(self) -> None:
        self.app.exit()
