"""The line in which a step or a condition is typed. While it is open, the keys belong to it."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import Input

__all__ = ["CommandLine"]

_ASKS = {":": "step N, or +N, -N", "b": "condition, such as free<2, preempted, A.decode, refcount>1"}


class CommandLine(Input):
    """kind: ":" for a step, "b" for a condition."""

    DEFAULT_CSS = """
    CommandLine, CommandLine:focus {
        height: 1; border: none; padding: 0 1; background: $bar-back; color: $panel-text; display: none;
    }
    CommandLine.open { display: block; }
    """

    class Done(Message):
        """text: what was typed; None if it was given up."""

        def __init__(self, kind: str, text: str | None) -> None:
            super().__init__()
            self.kind = kind
            self.text = text

    def __init__(self) -> None:
        super().__init__(id="command", select_on_focus=False)
        self.kind = ":"

    @property
    def is_open(self) -> bool:
        return self.has_class("open")

    def ask(self, kind: str, text: str = "") -> None:
        self.kind = kind
        self.value = text
        self.cursor_position = len(text)
        self.placeholder = _ASKS[kind]
        self.add_class("open")
        self.focus()

    def shut(self) -> None:
        self.remove_class("open")

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            self._done(None)
        elif event.key in ("tab", "shift+tab", "up", "down"):
            pass
        elif event.key == "enter":
            self._done(self.value)
        else:
            return
        event.stop()
        event.prevent_default()

    def on_blur(self) -> None:
        if self.is_open:
            self._done(None)

    def _done(self, text: str | None) -> None:
        self.shut()
        self.post_message(self.Done(self.kind, text))
