"""What every panel's drawing has: an extent, lines, and the way from a cell back to what it shows.

A drawing is pure: it is given a `View` and a room, and gives lines. It knows no terminal, so that the screen,
the comparison and `tinycb show` share it. Cells are counted in its own room; `scroll` says how far its
content is moved under it, and headings that stay in place are the drawing's own affair.

Next: `panels/`, one file each; `panel_widget.py`, which puts a drawing on the screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinycb.tui.history import History
from tinycb.tui.line import Line
from tinycb.tui.look import Look
from tinycb.tui.selection import Pick, Place, Selection
from tinycb.tui.snapshot import Snapshot

__all__ = ["Drawing", "View"]


@dataclass(frozen=True)
class View:
    """All that a drawing may look at. num_steps: of the source, which `history` may not have reached yet."""

    snapshot: Snapshot
    history: History
    selection: Selection
    look: Look
    header: dict[str, Any]
    num_steps: int
    zoomed: bool = False

    @property
    def place(self) -> Place | None:
        return self.snapshot.place(self.selection)

    def sign(self, request_id: str) -> int:
        return self.history.sign(request_id)

    def letter(self, request_id: str) -> str:
        return self.look.letter(self.history.sign(request_id))

    def config(self, name: str) -> Any:
        return self.header.get("config", {}).get(name)

    def source(self, name: str) -> str:
        """File and line of the code that computes something, as the trace has it."""
        return str(self.header.get("sources", {}).get(name, ""))


class Drawing:
    """One panel. Subclasses set `extent` in `lay_out` and draw from `self.view`."""

    name: ClassVar[str]
    title: ClassVar[str]
    help: ClassVar[str]
    fixed: tuple[int, int] = (0, 0)  # columns and lines that do not scroll

    view: View

    def __init__(self) -> None:
        self.width = self.height = 0
        self.extent = (0, 0)  # of the whole content, fixed lines and columns included

    def update(self, view: View, width: int, height: int) -> None:
        """Take in what is to be shown, and the room for it."""
        self.view, self.width, self.height = view, width, height
        self.place = view.place
        self.extent = (width, height)
        self.lay_out()

    def lay_out(self) -> None:
        """Work out what all lines share, and `extent`."""

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        """The y-th line of the room."""
        raise NotImplementedError

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        """What the cell shows."""
        return None

    def anchor(self) -> tuple[int, int, int, int] | None:
        """x, y, width and height, in the content, of what must be in sight."""
        return None

    def move(self, dx: int, dy: int) -> Pick | None:
        """The selection that the arrow keys lead to from the one there is."""
        return None

    def note(self) -> str:
        """A few words for the lower edge."""
        return ""

    def blank(self) -> Line:
        return Line(self.width, self.view.look.text)

    def step_position(self, delta: int) -> Pick | None:
        """The neighbouring token of the selected request, of those that are in memory."""
        place = self.place
        if place is None:
            return self.first_pick()
        last = self.view.snapshot.lengths.get(place.request_id, 0) - 1
        position = max(0, min(last, place.position + delta))
        return Pick(Selection(place.request_id, position))

    def step_request(self, delta: int) -> Pick | None:
        """The neighbouring request of the batch."""
        names = [row.request_id for row in self.view.snapshot.rows if row.num_tokens]
        if not names:
            return None
        current = self.view.selection.request_id
        at = names.index(current) + delta if current in names else 0
        return Pick(Selection(names[max(0, min(len(names) - 1, at))]))

    def first_pick(self) -> Pick | None:
        return self.step_request(0)
