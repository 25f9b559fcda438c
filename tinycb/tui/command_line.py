"""The line in which a step, a condition or an answer is typed. While it is open, it is given every key.

It never takes the focus: that would come a moment after the key that asks for it, and what is typed in that
moment would go elsewhere.
"""

from __future__ import annotations

from rich.style import Style
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from tinycb.tui.line import Line

__all__ = ["CommandLine"]

_ASKS = {
    ":": ("step: ", "N, or +N, -N"),
    "b": ("break at: ", "free<2, preempted, A.decode, refcount>1, …"),
    "=": ("answer: ", "its letter, its number, or its names"),
}


class CommandLine(Widget):
    """kind: ":" for a step, "b" for a condition, "=" for an answer. value: so far; the cursor is `at`."""

    DEFAULT_CSS = """
    CommandLine { height: 1; background: $bar-back; color: $panel-text; display: none; }
    CommandLine.open { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(id="command")
        self.kind = ":"
        self.value = ""
        self.at = 0
        self.is_open = False

    def ask(self, kind: str, text: str = "") -> None:
        """Open it, with a text to begin with."""
        self.kind, self.value, self.at = kind, text, len(text)
        self.is_open = True
        self.add_class("open")
        self.refresh()

    def feed(self, event: events.Key) -> str | None:
        """Take a key. Gives "done" or "given up" when the line is closed by it."""
        key, character = event.key, event.character
        if key in ("enter", "escape"):
            self.is_open = False
            self.remove_class("open")
            return "done" if key == "enter" else "given up"
        if key in ("left", "right"):
            self.at = max(0, min(len(self.value), self.at + (1 if key == "right" else -1)))
        elif key in ("home", "end"):
            self.at = 0 if key == "home" else len(self.value)
        elif key == "backspace":
            self.value = self.value[: max(0, self.at - 1)] + self.value[self.at :]
            self.at = max(0, self.at - 1)
        elif key == "delete":
            self.value = self.value[: self.at] + self.value[self.at + 1 :]
        elif key == "ctrl+u":
            self.value, self.at = self.value[self.at :], 0
        elif character is not None and character.isprintable():
            self.insert(character)
        self.refresh()
        return None

    def insert(self, text: str) -> None:
        """What is typed, or pasted."""
        text = "".join(character for character in text if character.isprintable())
        self.value = self.value[: self.at] + text + self.value[self.at :]
        self.at += len(text)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        line = Line(width, Style())
        prompt, hint = _ASKS[self.kind]
        start = line.put(1, prompt, Style(bold=True))
        shown = max(0, self.at - (width - start - 2))
        line.put(start, self.value[shown:], Style())
        if not self.value:
            line.put(start + 1, hint, Style(dim=True))
        cursor = start + self.at - shown
        line.put(cursor, self.value[self.at] if self.at < len(self.value) else " ", Style(reverse=True))
        return Strip(line.segments(), width).apply_style(self.rich_style)
