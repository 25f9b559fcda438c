"""The lines above and below the panels: title, tabs, and the footer with its message or its keys."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tinycb.tui.keys import KEYS
from tinycb.tui.line import Line, clip
from tinycb.tui.look import Look
from tinycb.tui.session import Session
from tinycb.tui.strips import forgetful

__all__ = ["Bar", "TabBar", "TitleBar"]


class Bar(Widget):
    """One line that others write."""

    DEFAULT_CSS = """
    Bar { height: 1; background: $bar-back; color: $panel-text; }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._line: Line | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        return forgetful(super().render_lines(crop))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._line is None or self._line.width != width:
            return Strip([Segment(" " * width, self.rich_style)])
        return Strip(self._line.segments(), width).apply_style(self.rich_style)

    def put(self, line: Line) -> None:
        self._line = line
        self.refresh()

    def footer(self, look: Look, message: str, inside: bool) -> None:
        """The message if there is one, else the keys."""
        line = Line(self.size.width, look.text)
        if message:
            line.put(1, clip(message, line.width - 2), look.style("warn", bold=True))
        elif inside:
            line.put(1, "arrows pick · esc goes back out · ? help", look.text)
        else:
            x = 1
            for key in KEYS:
                if key.short and x + len(key.shown) + len(key.short) + 3 < line.width:
                    x = line.put(x, key.shown, look.style("accent", bold=True))
                    x = line.put(x + 1, key.short, look.dim) + 2
        self.put(line)


class TitleBar(Bar):
    """What runs, which step it is, and whether it moves."""

    def title(self, look: Look, session: Session, names: str = "") -> None:
        """names: of what is shown, instead of the model and its policy."""
        line = Line(self.size.width, look.text)
        header = session.header
        config = header.get("config", {})
        record = session.snapshots.at(session.index).record
        steps = session.source.steps
        last = steps.start + session.num_steps - 1
        start = session.history.times[0] if session.history.times else 0.0
        state = self._state(session)
        kind = f"n: {session.kind or 'any event'}"
        right = f"{kind}   {state}   t = {record.time_end - start:.3f} s   step {record.step} of {last} "
        name = ("static", "continuous", "chunked")
        batching = str(config.get("batching", ""))
        words = [str(header.get("model", "")), batching if batching in name else batching.rpartition(":")[2]]
        words += [str(config.get("attention", ""))]
        left = names or " · ".join(word for word in words if word)
        at = line.put(1, "tinycb", look.style("accent", bold=True))
        room = line.width - at - 4
        if len(right) > room - 10:
            right = f"{state}  step {record.step} of {last} "
        line.put(at + 2, clip(left, max(0, room - len(right))), look.text)
        line.put(line.width - len(right), right, look.bold)
        self.put(line)

    @staticmethod
    def _state(session: Session) -> str:
        live = session.live
        if live is not None and not live.is_over:
            behind = session.num_steps - 1 - session.index
            state = "‖ live, paused" if live.is_paused else "● live"
            return f"{state}, {behind} behind" if behind else state
        if session.playing:
            return f"▶ {session.speed:g}/s"
        if not session.is_read and session.num_steps:
            return f"reading {100 * session.history.num_steps // session.num_steps} %"
        return "‖"


class TabBar(Bar):
    """The panels' names, where only one of them fits."""

    class Chosen(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def tabs(self, look: Look, names: list[str], front: str) -> None:
        line = Line(self.size.width, look.text)
        x = 0
        self._spots: list[tuple[int, int, str]] = []
        for number, name in enumerate(names, start=1):
            text = f" {number} {name} "
            style = look.chosen if name == front else look.dim + Style(bold=False)
            stop = line.put(x, text, style)
            self._spots.append((x, stop, name))
            x = stop
        self.put(line)

    def on_click(self, event: events.Click) -> None:
        for start, stop, name in getattr(self, "_spots", ()):
            if start <= event.x < stop:
                self.post_message(self.Chosen(name))
