"""What is looked at: one token of one request, the same in every panel, and where it is.

    request → position → row and column of the mask → logical block → physical block, offset → slot

Next: `drawing.py`, what a panel needs in order to show it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pick", "Place", "Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """A request and a position in it; without a position, its newest token, whichever step is shown."""

    request_id: str | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    """What a click or a key chose: a selection, and perhaps another step."""

    selection: Selection
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A token's addresses in one step. None: it has none.

    query: its row of T, if this step computes it. key: its column of S, if its request runs in this step.
    readers: the first and the last row of T that attend to it. physical, slot: None if it is not in memory.
    """

    request_id: str
    position: int
    text: str
    logical: int
    offset: int
    physical: int | None
    slot: int | None
    query: int | None
    key: int | None
    readers: tuple[int, int] | None

    def formula(self, block_size: int) -> str:
        """How the slot follows from request and position, with the numbers filled in.

        >>> Place("B", 5, "", 1, 1, 7, 29, None, None, None).formula(4)
        'slot = block_table[B][5 // 4] * 4 + 5 % 4 = 7*4+1 = 29'
        """
        name, p, size = self.request_id, self.position, block_size
        steps = f"slot = block_table[{name}][{p} // {size}] * {size} + {p} % {size}"
        if self.physical is None:
            return f"{steps}: not in memory"
        return f"{steps} = {self.physical}*{size}+{self.offset} = {self.slot}"
