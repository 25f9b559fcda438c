"""The selected token's addresses, one after the other, and the formula with its numbers filled in.

B token 5 "is" → row 12 of T, column 17 of S → logical block 1 → block 7, offset 1 → slot 29
slot = block_table[B][5 // 4] * 4 + 5 % 4 = 7*4+1 = 29                      tinycb/packing.py:98
read by queries 12…15, B's tokens 5…8: mask[t, 17] is True there            tinycb_kernels/mask.py:66
"""

from __future__ import annotations

from rich.style import Style

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.selection import Pick

__all__ = ["PlaceDrawing"]


class PlaceDrawing(Drawing):
    name = "place"
    title = "Selected token"
    help = "Where the selected token is, and how that follows. ← → the token beside it, ↑ ↓ another request."

    def lay_out(self) -> None:
        self.extent = (self.width, 3)

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line, look, place = self.blank(), self.view.look, self.place
        row = y + scroll_y
        if place is None:
            if row == 0:
                name = self.view.selection.request_id
                text = "nothing is selected: click on anything, or press Enter in a panel"
                if name is not None:
                    text = f"{name} has nothing in memory in this step, and runs nothing"
                line.put(1, clip(text, self.width - 2), look.dim)
            return line
        if row < 3:
            text, source = (self._chain, self._formula, self._readers)[row]()
            if len(text) + len(source) + 4 > self.width:  # the file's name alone, or nothing
                source = source.rpartition("/")[2]
            if len(text) + len(source) + 4 > self.width:
                source = ""
            end = self.width - len(source) - 3 if source else self.width - 1
            if row == 0:
                sign = self.view.sign(place.request_id)
                at = line.put(1, self.view.letter(place.request_id), look.solid(sign))
                line.put(at + 1, clip(text, end - at - 1), look.text)
            else:
                line.put(1, clip(text, end - 1), look.bold if row == 1 else look.text)
            if end < self.width - 1:
                line.put(self.width - len(source) - 1, source, look.label + Style(italic=True))
        return line

    def _chain(self) -> tuple[str, str]:
        """In full words, or in fewer where they do not fit."""
        place = self.place
        assert place is not None
        token_id = self.view.snapshot.token_id(place.request_id, place.position)
        text = (
            f' "{place.text.strip(" ") or " "}"'
            if place.text
            else f" #{token_id}"
            if token_id is not None
            else ""
        )
        long = [f"{place.request_id} token {place.position}{text}"]
        short = [f"token {place.position}{text}"]
        row = f"row {place.query}" if place.query is not None else "no row, computed before"
        if place.key is not None:
            long.append(f"{row} of T, column {place.key} of S".replace("before of T", "before"))
            short.append(f"{row}, column {place.key}")
        else:
            long.append("not in this step's batch")
            short.append("not in the batch")
        long.append(f"logical block {place.logical}")
        short.append(f"logical {place.logical}")
        if place.physical is not None:
            long += [f"block {place.physical}, offset {place.offset}", f"slot {place.slot}"]
            short += [f"block {place.physical}+{place.offset}", f"slot {place.slot}"]
        else:
            long.append("not in memory")
            short.append("not in memory")
        source = self.view.source("block_table")
        words = " → ".join(long)
        if len(words) + len(source) + 8 <= self.width:
            return words, source
        return " → ".join(short), ""

    def _formula(self) -> tuple[str, str]:
        assert self.place is not None
        return self.place.formula(self.view.snapshot.block_size), self.view.source("slot_mapping")

    def _readers(self) -> tuple[str, str]:
        place, snapshot = self.place, self.view.snapshot
        assert place is not None
        if place.readers is None:
            return "no query of this step reads it", self.view.source("mask")
        first, last = place.readers
        name = place.request_id
        ends = [found[1] for t in (first, last) if (found := snapshot.token_at(t)) is not None]
        if first == last:
            text = f"read by query {first}, {name}'s token {ends[0]}"
        else:
            text = f"read by queries {first}…{last}, {name}'s tokens {ends[0]}…{ends[-1]}"
        if self.width >= 100:
            text += f": mask[t, {place.key}] is True there"
        return text, self.view.source("mask")

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        return None

    def move(self, dx: int, dy: int) -> Pick | None:
        return self.step_request(dy) if dy else self.step_position(dx)
