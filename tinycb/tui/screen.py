"""The main screen: title, panels, footer, and what each key does.

A key only changes the session and asks for a drawing. Drawings wait a moment, so that however fast keys come,
there is one for the last of them, and none is ever queued behind another.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.widgets import Static

from tinycb.tracing.codec import TraceError
from tinycb.tui.actions import Actions
from tinycb.tui.bars import Bar, TabBar, TitleBar
from tinycb.tui.command_line import CommandLine
from tinycb.tui.keys import action_of
from tinycb.tui.layout import SMALLEST, arrange
from tinycb.tui.look import Look
from tinycb.tui.panel_widget import PanelWidget
from tinycb.tui.panels import DRAWINGS
from tinycb.tui.session import Session

__all__ = ["MainScreen"]

DRAW_AFTER = 0.008  # seconds in which further keys join in
SLICE = 0.010  # seconds of reading between two keys
POLL = 0.1  # seconds between looks at a live run


class MainScreen(Actions):
    """Everything about one run."""

    DEFAULT_CSS = """
    MainScreen { background: $panel-back; overflow: hidden; layers: base; }
    MainScreen > PanelWidget { position: absolute; display: none; }
    MainScreen > #title, MainScreen > #tabs { position: absolute; }
    MainScreen > #tabs { display: none; offset: 0 1; }
    MainScreen > #footer { dock: bottom; }
    MainScreen > #command { dock: bottom; }
    MainScreen > #small {
        display: none; width: 100%; height: 100%; content-align: center middle; text-align: center;
    }
    """

    def __init__(self, session: Session, look: Look) -> None:
        super().__init__()
        self.session = session
        self.look = look
        self.panels = {d.name: PanelWidget(d(), number) for number, d in enumerate(DRAWINGS, start=1)}
        self.front = "timeline"
        self.current = self.panels[self.front]
        self.mode = "all"
        self.drawings = 0  # how often the panels were drawn
        self._waiting_for = ""  # a key whose letter is still to come: m or '
        self._is_asked = False
        self._last_drawn = ""

    def compose(self) -> ComposeResult:
        yield TitleBar("title")
        yield TabBar("tabs")
        yield from self.panels.values()
        yield Static("", id="small")
        yield Bar("footer")
        yield CommandLine()

    def on_mount(self) -> None:
        self.arrange_panels()
        self.set_focus(self.current)
        self.ask_for_drawing()
        self._play_timer = self.set_interval(1 / self.session.speed, self._tick)
        self.set_interval(SLICE, self._work)
        if self.session.live is not None:
            self.set_interval(POLL, self._poll)

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────

    def arrange_panels(self) -> None:
        lives = len(self.session.history.lives)
        arrangement = arrange(self.app.size.width, self.app.size.height, self.front, lives)
        self.set_mode(arrangement.mode)
        for name, panel in self.panels.items():
            panel.put(arrangement.boxes.get(name))

    def set_mode(self, mode: str) -> None:
        """Tabs, all panels, or only that the terminal is too small."""
        self.mode = mode
        self.query_one("#tabs").display = mode == "tabs"
        small, size = self.query_one("#small", Static), self.app.size
        small.display = mode == "small"
        least = " × ".join(map(str, SMALLEST))
        small.update(f"This terminal is {size.width} × {size.height}; make it at least {least}.")

    def on_resize(self) -> None:
        self.arrange_panels()
        self.ask_for_drawing()

    @property
    def is_settled(self) -> bool:
        """Whether everything that was asked for is on the screen."""
        return not self._is_asked and not self.session.is_busy

    def ask_for_drawing(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self.set_timer(DRAW_AFTER, self.draw)

    def draw(self) -> None:
        """Bring every panel in sight to the session's step."""
        self._is_asked = False
        session = self.session
        try:
            view = session.view(self.look)
        except (TraceError, KeyError, ValueError) as error:
            session.message = f"this step cannot be shown: {error}"
            self.draw_footer()
            return
        self.drawings += 1
        with self.app.batch_update():
            self.query_one(TitleBar).title(self.look, session)
            if self.mode == "tabs":
                self.query_one(TabBar).tabs(self.look, list(self.panels), self.front)
            for panel in self.panels.values():
                if panel.display:
                    panel.show(view)
            self.draw_footer()

    def draw_footer(self) -> None:
        inside = self.current.inside
        message = self.session.message
        if self.session.live is not None and self.session.live.error and not message:
            message = f"the run ended: {self.session.live.error}; what came before can be looked at"
        self.query_one("#footer", Bar).footer(self.look, message, inside)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        if self.session.playing and not self._is_asked:
            self.session.tick()
            self.ask_for_drawing()

    def _work(self) -> None:
        session = self.session
        if not session.is_busy:
            return
        before = session.index, session.history.num_steps * 4 // max(1, session.num_steps)
        session.work(SLICE)
        after = session.index, session.history.num_steps * 4 // max(1, session.num_steps)
        if before != after or not session.is_busy:
            self.ask_for_drawing()
        else:
            self.query_one(TitleBar).title(self.look, session)
            self.draw_footer()

    def _poll(self) -> None:
        live = self.session.live
        state = "" if live is None else f"{live.is_paused} {live.is_over} {live.error}"
        if self.session.refresh() or state != self._last_drawn:
            self._last_drawn = state
            self.ask_for_drawing()

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────

    def on_key(self, event: events.Key) -> None:
        """First comes a line that is typed, then a letter that is awaited, then a panel that was entered."""
        line = self.query_one(CommandLine)
        action = action_of(event.key, event.character)
        if line.is_open:
            end = line.feed(event)
            if end is not None:
                self._typed(line.kind, line.value if end == "done" else None)
        elif self._waiting_for:
            self._letter_came(event)
        elif self.current.take_key(event.key):
            self.session.message = ""
            self.ask_for_drawing()
        elif action is not None and action != "command_palette":
            self.do(action)
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        line = self.query_one(CommandLine)
        if line.is_open:
            line.insert(event.text)

    def do(self, action: str) -> None:
        """Run an action as `keys.py` writes it."""
        self.session.message = ""
        name, _, rest = action.partition("(")
        method = getattr(self, f"do_{name}")
        method(int(rest[:-1])) if rest else method()
        self.ask_for_drawing()

    def _letter_came(self, event: events.Key) -> None:
        key, self._waiting_for = self._waiting_for, ""
        self.session.message = ""
        letter = event.character or ""
        if event.key != "escape" and letter.isprintable() and letter:
            (self.session.set_mark if key == "m" else self.session.to_mark)(letter)
        self.ask_for_drawing()

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────

    def on_panel_widget_picked(self, message: PanelWidget.Picked) -> None:
        self.session.message = ""
        self.session.choose(message.pick)
        self.ask_for_drawing()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click may give a panel the focus; an older focus that is reported late says nothing."""
        if isinstance(event.widget, PanelWidget) and event.widget is self.focused:
            self.current = event.widget
            self.front = event.widget.drawing.name
            self.ask_for_drawing()

    def on_tab_bar_chosen(self, message: TabBar.Chosen) -> None:
        self.do_panel_number(list(self.panels).index(message.name) + 1)
        self.ask_for_drawing()

    def _typed(self, kind: str, text: str | None) -> None:
        self.session.message = ""
        if text is not None:
            try:
                if kind == ":":
                    self.session.goto(text)
                else:
                    self.session.break_at(text)
            except ValueError as error:
                self.session.message = str(error)
        self.ask_for_drawing()
