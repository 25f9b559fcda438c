"""Help for what has the focus, and all keys."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tinycb.tui.drawing import Drawing
from tinycb.tui.keys import KEYS
from tinycb.tui.look import Look

__all__ = ["HelpScreen"]


class HelpScreen(ModalScreen[None]):
    """Any key closes it, but those that scroll."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 84; max-width: 100%; height: auto; max-height: 100%;
        border: round $panel-focus; background: $panel-back; color: $panel-text; padding: 0 1;
    }
    """

    def __init__(self, drawing: Drawing, look: Look) -> None:
        super().__init__()
        self._drawing = drawing
        self._look = look

    def compose(self) -> ComposeResult:
        look = self._look
        with VerticalScroll() as box:
            box.border_title = "Help"
            box.border_subtitle = "esc closes"
            text = Text(self._drawing.title, style=look.label)
            text.append(f"\n{self._drawing.help}\n", style=look.text)
            if note := self._drawing.note():
                text.append(f"{note}\n", style=look.dim)
            yield Static(text)
            table = Table.grid(padding=(0, 2, 0, 0))
            for key in KEYS:
                if not key.action.startswith("panel_number"):
                    table.add_row(
                        Text(key.shown, style=look.style("accent", bold=True)),
                        Text(key.text, style=look.text),
                    )
            table.add_row(
                Text("1 … 8", style=look.style("accent", bold=True)),
                Text("a panel by its number", style=look.text),
            )
            yield Static(table)

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("up", "down", "pageup", "pagedown", "home", "end", "ctrl+p"):
            event.stop()
            self.dismiss()

    def on_click(self) -> None:
        self.dismiss()
