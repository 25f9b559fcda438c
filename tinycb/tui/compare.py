"""Two runs side by side, with one cursor, by step or by time.

The run that goes on longer leads: its session has the cursor, the marks and the search; the other follows and
stays at its end. A selection holds for both, by the request's id.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tinycb.tracing.codec import TraceError
from tinycb.tui.app import Visualizer
from tinycb.tui.bars import Bar, TabBar, TitleBar
from tinycb.tui.command_line import CommandLine
from tinycb.tui.layout import arrange_pair
from tinycb.tui.look import Look
from tinycb.tui.panel_widget import PanelWidget
from tinycb.tui.panels import DRAWINGS
from tinycb.tui.panels.totals import TotalsDrawing
from tinycb.tui.screen import SLICE, MainScreen
from tinycb.tui.selection import Pick
from tinycb.tui.session import Session
from tinycb.tui.tally import Tally

__all__ = ["CompareApp", "CompareScreen"]


class CompareScreen(MainScreen):
    """sides: the sessions, left and right. session: the one that leads."""

    DEFAULT_CSS = """
    CompareScreen { background: $panel-back; overflow: hidden; layers: base; }
    CompareScreen > PanelWidget { position: absolute; display: none; }
    CompareScreen > #title, CompareScreen > #tabs, CompareScreen > .name { position: absolute; }
    CompareScreen > #footer { dock: bottom; }
    CompareScreen > #command { dock: bottom; }
    CompareScreen > #small {
        display: none; width: 100%; height: 100%; content-align: center middle; text-align: center;
    }
    """

    def __init__(self, sides: Sequence[Session], names: Sequence[str], look: Look) -> None:
        self.sides = list(sides)
        self.names = list(names)
        self.by_time = False
        super().__init__(self._leader(), look)
        self.tally = Tally([session.source for session in sides])
        drawings = [d for d in DRAWINGS if d.name != "place"]
        self.pair = [
            {d.name: PanelWidget(d(), number, prefix) for number, d in enumerate(drawings, start=1)}
            for prefix in ("left-", "right-")
        ]
        self.panels = self.pair[0]
        self.current = self.panels[self.front]
        self.totals = PanelWidget(TotalsDrawing(self.tally, self.names))

    def compose(self) -> ComposeResult:
        yield TitleBar("title")
        yield TabBar("tabs")
        for panels in self.pair:
            yield from panels.values()
        yield self.totals
        yield Static("", id="small")
        yield Bar("footer")
        yield CommandLine()

    # ── one cursor ────────────────────────────────────────────────────────────────────────────────────

    def _leader(self) -> Session:
        def length(session: Session) -> float:
            return _time(session, session.num_steps - 1) if self.by_time else session.num_steps

        return max(self.sides, key=length)

    def _follow(self) -> None:
        """Bring the other run to where the leading one is."""
        lead = self.session
        for session in self.sides:
            if session is not lead:
                session.selection = lead.selection
                session.zoomed = lead.zoomed
                session.go(self._aligned(lead, lead.index, session))

    def _aligned(self, one: Session, index: int, other: Session) -> int:
        """The step of another run that goes with a step of one."""
        if not self.by_time:
            return index
        times = other.history.times
        start = times[0] if times else 0.0
        return max(0, bisect_right(times, start + _time(one, index) + 1e-9) - 1)

    def do_align(self) -> None:
        """Switch between by step and by time."""
        before, index = self.session, self.session.index
        self.by_time = not self.by_time
        self.session = self._leader()
        self.session.selection = before.selection
        self.session.go(self._aligned(before, index, self.session))
        self.session.message = f"both runs at the same {'time' if self.by_time else 'step'}"

    def do_difference(self) -> None:
        """Go to the first step in which the runs differ."""
        found = self.tally.first_difference
        if found is None:
            so_far = "" if self.tally.is_done else f" up to step {self.tally.index}"
            self.session.message = f"no step differs{so_far}"
            return
        if self.by_time:
            self.do_align()
        self.session.go(found[0])
        self.session.message = f"the runs first differ here, in {found[1]}"

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────

    def arrange_panels(self) -> None:
        lives = max(len(session.history.lives) for session in self.sides)
        arrangement = arrange_pair(self.app.size.width, self.app.size.height, self.front, lives)
        self.set_mode(arrangement.mode)
        for panels, prefix in zip(self.pair, ("left-", "right-"), strict=True):
            for name, panel in panels.items():
                panel.put(arrangement.boxes.get(prefix + name))
        self.totals.put(arrangement.boxes.get("totals"))

    def draw(self) -> None:
        self._is_asked = False
        self._follow()
        self.drawings += 1
        with self.app.batch_update():
            how = "by time" if self.by_time else "by step"
            names = f"{self.names[0]} against {self.names[1]}, {how}"
            self.query_one(TitleBar).title(self.look, self.session, names)
            if self.mode == "tabs":
                self.query_one(TabBar).tabs(self.look, list(self.panels), self.front)
            for session, panels, name in zip(self.sides, self.pair, self.names, strict=True):
                try:
                    view = session.view(self.look)
                    if not self.by_time:  # one scale for both timelines, so that the cursors line up
                        view = replace(view, num_steps=self.session.num_steps)
                except (TraceError, KeyError, ValueError) as error:
                    self.session.message = f"{name}: this step cannot be shown: {error}"
                    continue
                for panel in panels.values():
                    if panel.display:
                        step = session.source.steps[session.index]
                        over = " (over)" if session.index == session.num_steps - 1 else ""
                        title = f"{panel.drawing.title} · {name} step {step}{over}"
                        panel.border_title = title.replace("[", r"\[")
                        panel.show(view)
                if session is self.session and self.totals.display:
                    self.totals.show(view)
            self.draw_footer()

    def _work(self) -> None:
        if not self.tally.is_done:
            before, end = self.tally.index // 512, time.perf_counter() + SLICE
            while not self.tally.is_done and time.perf_counter() < end:
                self.tally.work()
            if self.tally.is_done or self.tally.index // 512 != before:
                self.ask_for_drawing()
        for session in self.sides:
            if session is not self.session and session.is_busy:
                session.work(SLICE)
        super()._work()

    @property
    def is_settled(self) -> bool:
        return super().is_settled and self.tally.is_done and not any(s.is_busy for s in self.sides)

    def on_panel_widget_picked(self, message: PanelWidget.Picked) -> None:
        pairs = zip(self.sides, self.pair, strict=True)
        side = next((session for session, panels in pairs if message.panel in panels.values()), None)
        pick = message.pick
        if side is not None and side is not self.session and pick.index is not None:
            pick = Pick(pick.selection, self._aligned(side, pick.index, self.session))
        self.session.message = ""
        self.session.choose(pick)
        self.ask_for_drawing()


def _time(session: Session, index: int) -> float:
    """Seconds from the first step's end to that of a step that has been read, or the last that was."""
    times = session.history.times
    return times[min(index, len(times) - 1)] - times[0] if times else 0.0


class CompareApp(Visualizer):
    """Shows two sessions."""

    def __init__(self, sessions: Sequence[Session], names: Sequence[str], look: str = "dark") -> None:
        super().__init__(sessions[0], look)
        self._sessions = sessions
        self._names = names

    def main_screen(self) -> Screen[None]:
        return CompareScreen(self._sessions, self._names, self.look)
