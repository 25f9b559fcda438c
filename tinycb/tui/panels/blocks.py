"""The KV pool: every block, who holds it, how full it is, and beside it the selected request's block table.

    3        4+       5×2      6        its number; + given out in this step, − given back, ×2 references
    BBBB     B___     DDDD     ░░░░     its slots: a letter a token, _ empty, (B) reserved, ░ cached but free

Where that does not fit, a block is two cells, its letter and how full it is.
"""

from __future__ import annotations

from rich.style import Style

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.selection import Pick, Selection

__all__ = ["BlocksDrawing"]

EIGHTHS = " ▁▂▃▄▅▆▇█"
CACHED, FREE, EMPTY = "░", "·", "_"
TABLE = 21  # columns of the block table


class BlocksDrawing(Drawing):
    name = "blocks"
    title = "KV blocks"
    help = (
        "The pool, block by block. The arrows choose a block; where several requests share it, the selected "
        "one stays. + was given out in this step, − given back; ×2 counts references."
    )

    def lay_out(self) -> None:
        snapshot = self.view.snapshot
        size, count = snapshot.block_size, snapshot.num_blocks
        self.table = TABLE if self.width >= 2 * TABLE + 4 else 0
        room = self.width - self.table
        digits = len(str(count - 1))
        self.slots = min(size, 8)
        wide = max(self.slots, digits + 3) + 2
        self.label = 0
        self.lines = 3
        self.cell = wide
        self.per_row = max(1, room // wide)
        if -(-count // self.per_row) * 3 > self.height:
            self.lines, self.cell, self.label = 1, 3, digits + 2
            fit = max(1, (room - self.label) // 3)
            self.per_row = fit - fit % 8 if fit > 8 else fit
        rows = -(-count // self.per_row)
        self.extent = (self.width, rows * self.lines)

    def _visible_height(self) -> int:
        """Where there is no room for the block table beside the grid, it takes the last line."""
        return self.height if self.table else self.height - 1

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        if not self.table and y == self.height - 1:
            self._table_line(line)
            return line
        row, part = divmod(y + scroll_y, self.lines)
        first = row * self.per_row
        if self.label and first < self.view.snapshot.num_blocks:
            line.put(0, str(first).rjust(self.label - 1), self.view.look.dim)
        for block_id in range(first, min(first + self.per_row, self.view.snapshot.num_blocks)):
            x = self.label + (block_id - first) * self.cell
            if self.lines == 1:
                self._small(line, x, block_id)
            elif part == 0:
                self._number(line, x, block_id)
            elif part == 1:
                self._slots(line, x, block_id)
        if self.table:
            self._table_part(line, y)
        return line

    def _owner(self, block_id: int) -> str | None:
        owners = self.view.snapshot.owners.get(block_id)
        if not owners:
            return None
        selected = self.view.selection.request_id
        return selected if selected in owners else owners[0]

    def _mark(self, block_id: int) -> str:
        snapshot = self.view.snapshot
        return "+" if block_id in snapshot.fresh else "−" if block_id in snapshot.freed else ""

    def _number(self, line: Line, x: int, block_id: int) -> None:
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        owners = snapshot.owners.get(block_id, ())
        chosen = place is not None and place.physical == block_id
        held = self.view.selection.request_id in owners
        style = look.chosen if chosen else look.bold if held else look.dim
        at = line.put(x, str(block_id), style)
        mark = self._mark(block_id)
        at = line.put(at, mark, look.style("good" if mark == "+" else "bad", bold=True))
        if len(owners) > 1:
            line.put(at, f"×{len(owners)}", look.style("warn", bold=True))

    def _slots(self, line: Line, x: int, block_id: int) -> None:
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        owner = self._owner(block_id)
        if owner is None:
            glyph = CACHED if block_id in snapshot.state.cached else FREE
            line.put(x, glyph * self.slots, look.dim if glyph == CACHED else look.faint)
            return
        logical = snapshot.tables[owner].index(block_id)
        fill = snapshot.block_fill(owner, logical)
        sign = self.view.sign(owner)
        full = -(-fill * self.slots // snapshot.block_size)
        letter = self.view.letter(owner)[0]
        line.put(x, letter * full, look.solid(sign))
        line.put(x + full, EMPTY * (self.slots - full), look.ink(sign))
        if not full:
            line.put(x, f"({letter})", look.ink(sign), x + self.slots)
        if place is not None and place.physical == block_id:
            line.put(x + place.offset * self.slots // snapshot.block_size, letter, look.chosen)

    def _small(self, line: Line, x: int, block_id: int) -> None:
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        owner = self._owner(block_id)
        mark = self._mark(block_id)
        if owner is None:
            glyph = CACHED if block_id in snapshot.state.cached else FREE
            line.put(x, glyph * 2, look.dim if glyph == CACHED else look.faint)
        else:
            sign, owners = self.view.sign(owner), snapshot.owners[block_id]
            fill = snapshot.block_fill(owner, snapshot.tables[owner].index(block_id))
            chosen = place is not None and place.physical == block_id
            letter = self.view.letter(owner)
            style = look.chosen if chosen else look.solid(sign)
            if len(letter) > 1:
                line.put(x, letter[:2], style)
            else:
                line.put(x, letter, style)
                if len(owners) > 1:
                    line.put(x + 1, str(min(9, len(owners))), look.style("warn", bold=True))
                else:
                    line.put(x + 1, EIGHTHS[-(-fill * 8 // snapshot.block_size)], look.ink(sign))
        if not mark and len(snapshot.owners.get(block_id, ())) > 1:
            line.put(x + 2, "×", look.style("warn", bold=True))
        line.put(x + 2, mark, look.style("good" if mark == "+" else "bad", bold=True))

    # ── the block table ───────────────────────────────────────────────────────────────────────────────

    def _table_part(self, line: Line, y: int) -> None:
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        x = self.width - self.table
        line.put(x, "│", look.faint)
        x += 2
        name = self.view.selection.request_id
        if name is None:
            return
        ink = look.ink(self.view.sign(name))
        if y == 0:
            line.put(x, f"block_table[{self.view.letter(name)}]", ink + Style(bold=True))
            return
        table = snapshot.tables.get(name)
        if not table:
            if y == 1:
                line.put(x, "none: it holds no block", look.dim)
            return
        room = self.height - 1
        logical = place.logical if place is not None and place.physical is not None else 0
        first = max(0, min(logical - room // 2, len(table) - room))
        i = first + y - 1
        if i >= len(table):
            return
        chosen = place is not None and place.physical is not None and i == logical
        size = snapshot.block_size
        line.put(x, f"{i:>3} → ", look.dim)
        line.put(x + 6, str(table[i]).rjust(3), look.chosen if chosen else ink)
        shared = len(snapshot.owners.get(table[i], ()))
        words = f" {i * size}…{i * size + max(0, snapshot.block_fill(name, i) - 1)}"
        line.put(x + 9, words + (f" ×{shared}" if shared > 1 else ""), look.dim)

    def _table_line(self, line: Line) -> None:
        look, name = self.view.look, self.view.selection.request_id
        if name is not None:
            table = " ".join(map(str, self.view.snapshot.tables.get(name, ())))
            text = f"block_table[{self.view.letter(name)}] = [{table}]"
            line.put(0, clip(text, self.width), look.ink(self.view.sign(name)))

    # ── picking ───────────────────────────────────────────────────────────────────────────────────────

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        snapshot = self.view.snapshot
        if self.table and x >= self.width - self.table:
            return self._at_table(y)
        row = (y + scroll_y) // self.lines
        column = (x - self.label) // self.cell
        block_id = row * self.per_row + column
        if x < self.label or column >= self.per_row or not 0 <= block_id < snapshot.num_blocks:
            return None
        offset = 0
        if self.lines > 1:
            inside = min(self.slots - 1, (x - self.label) % self.cell)
            offset = inside * snapshot.block_size // self.slots
        return self._pick(block_id, offset)

    def _at_table(self, y: int) -> Pick | None:
        name = self.view.selection.request_id
        table = self.view.snapshot.tables.get(name or "")
        if not table or name is None or y < 1:
            return None
        logical = self.place.logical if self.place is not None and self.place.physical is not None else 0
        i = max(0, min(logical - (self.height - 1) // 2, len(table) - self.height + 1)) + y - 1
        last = self.view.snapshot.lengths.get(name, 1) - 1
        return Pick(Selection(name, min(last, i * self.view.snapshot.block_size))) if i < len(table) else None

    def _pick(self, block_id: int, offset: int) -> Pick | None:
        found = self.view.snapshot.position_of(block_id, offset, self.view.selection.request_id)
        return Pick(Selection(*found)) if found else None

    def anchor(self) -> tuple[int, int, int, int] | None:
        if self.place is None or self.place.physical is None:
            return None
        row = self.place.physical // self.per_row
        return 0, row * self.lines, 1, min(2, self.lines)

    def move(self, dx: int, dy: int) -> Pick | None:
        """To the next block that somebody holds, in the direction of the arrow."""
        snapshot, place = self.view.snapshot, self.place
        if place is None or place.physical is None:
            held = sorted(snapshot.owners)
            return self._pick(held[0], 0) if held else None
        block_id, step = place.physical, dx + dy * self.per_row
        block_id += step
        while 0 <= block_id < snapshot.num_blocks:
            if block_id in snapshot.owners:
                return self._pick(block_id, place.offset)
            block_id += step
        return None

    def note(self) -> str:
        snapshot = self.view.snapshot
        cached = len(snapshot.state.cached - snapshot.owners.keys())
        used, total = snapshot.num_held, snapshot.num_blocks
        return f"{used} of {total} blocks used · {CACHED} {cached} cached and free · + new − freed ×n shared"
