"""Puts a drawing on the screen: its border, its scrolling, its focus, and clicks as picks.

One widget for every panel, and no widget for a cell: lines are made when they are asked for and kept until
what they show changes. Enter goes into a panel, where the arrows pick; Escape comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tinycb.tui.drawing import Drawing, View
from tinycb.tui.layout import Box
from tinycb.tui.selection import Pick
from tinycb.tui.strips import forgetful

__all__ = ["PanelWidget"]

_ARROWS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
_ARROWS |= {f"shift+{key}": (10 * dx, 10 * dy) for key, (dx, dy) in list(_ARROWS.items())}


class PanelWidget(Widget, can_focus=True):
    """Shows `drawing`. left, top: how far its content is scrolled. inside: the arrows pick in it."""

    DEFAULT_CSS = """
    PanelWidget {
        border: round $panel-edge;
        border-title-color: $panel-title;
        border-subtitle-color: $panel-note;
        background: $panel-back;
        color: $panel-text;
    }
    PanelWidget:focus { border: round $panel-focus; border-title-style: bold; }
    PanelWidget.inside { border: heavy $panel-focus; }
    """

    @dataclass
    class Picked(Message):
        """Something was chosen in a panel."""

        panel: PanelWidget
        pick: Pick

    def __init__(self, drawing: Drawing, number: int = 0, prefix: str = "") -> None:
        super().__init__(id=f"{prefix}{drawing.name}")
        self.drawing = drawing
        self.left = self.top = 0
        self.inside = False
        self._view: View | None = None
        self._strips: dict[int, Strip] = {}
        self.border_title = f"{number} {drawing.title}" if number else drawing.title

    def put(self, box: Box | None) -> None:
        """Its place on the screen; None hides it."""
        self.display = box is not None
        if box is not None:
            self.styles.offset = (box.x, box.y)
            self.styles.width, self.styles.height = box.width, box.height

    def show(self, view: View) -> None:
        """Draw another step or selection, scrolled so that what is selected is in sight."""
        self._view = view
        width, height = self.content_size
        if width <= 0 or height <= 0:
            return
        self.drawing.update(view, width, height)
        self._scroll_to_anchor()
        self._redraw()

    def _scroll_to_anchor(self) -> None:
        anchor = self.drawing.anchor()
        if anchor is None:
            self._clamp()
            return
        x, y, width, height = anchor
        columns, lines = self.drawing.fixed
        room_x, room_y = self.content_size.width - columns, self.content_size.height - lines
        if x - columns < self.left or x + width - columns > self.left + room_x:
            self.left = x - columns - room_x // 2  # far off: to the middle, so that the next steps need none
        if y - lines < self.top:
            self.top = y - lines
        elif y + height - lines > self.top + room_y:
            self.top = y + height - lines - room_y
        self._clamp()

    def _clamp(self) -> None:
        width, height = self.drawing.extent
        self.left = max(0, min(self.left, width - self.content_size.width))
        self.top = max(0, min(self.top, height - self.content_size.height))

    def _redraw(self) -> None:
        self._strips.clear()
        width, height = self.drawing.extent
        note = self.drawing.note()
        more = []
        if height > self.content_size.height:
            more.append(f"↕ {self.top + 1}…{min(height, self.top + self.content_size.height)} of {height}")
        if width > self.content_size.width:
            more.append("↔")
        self.border_subtitle = " · ".join([*more, note] if note else more).replace("[", r"\[")
        self.refresh()

    def scroll_cells(self, dx: int, dy: int) -> None:
        """Move the content, and not the selection."""
        if self._view is None:
            return
        before = self.left, self.top
        self.left, self.top = self.left + dx, self.top + dy
        self._clamp()
        if (self.left, self.top) != before:
            self._redraw()

    def render_lines(self, crop: Region) -> list[Strip]:
        return forgetful(super().render_lines(crop))

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            width = self.content_size.width
            if self._view is None or self.drawing.width != width:
                return Strip([Segment(" " * width, self.rich_style)])
            line = self.drawing.line(y, self.left, self.top)
            strip = Strip(line.segments(), width).apply_style(self.rich_style)
            self._strips[y] = strip
        return strip

    # ── picking ───────────────────────────────────────────────────────────────────────────────────────

    def enter(self) -> None:
        self.inside = True
        self.add_class("inside")

    def leave(self) -> None:
        self.inside = False
        self.remove_class("inside")

    def on_blur(self) -> None:
        self.leave()

    def on_resize(self) -> None:
        if self._view is not None:
            self.show(self._view)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or self._view is None:
            return
        pick = self.drawing.at(offset.x, offset.y, self.left, self.top)
        if pick is not None:
            self.post_message(self.Picked(self, pick))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        sideways = event.shift or event.ctrl or self.drawing.extent[1] <= self.content_size.height
        self.scroll_cells(*((8 * direction, 0) if sideways else (0, 2 * direction)))
        event.stop()

    def take_key(self, key: str) -> bool:
        """What a key does in a panel that has been entered. False: it is none of the panel's."""
        if self._view is None:
            return False
        if not self.inside:
            if key != "enter":
                return False
            self.enter()
            if self._view.place is None:
                self._pick(self.drawing.first_pick())
        elif key == "escape":
            self.leave()
        elif key in _ARROWS:
            self._pick(self.drawing.move(*_ARROWS[key]))
        else:
            return False
        return True

    def _pick(self, pick: Pick | None) -> None:
        if pick is not None:
            self.post_message(self.Picked(self, pick))
