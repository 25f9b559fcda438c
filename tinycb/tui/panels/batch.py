"""The packed row of the step, token by token, with the arrays lined up under what they index.

    request          A     B                       C
    token            the   You   are   a    guide  one
    position         6     0     1     2    3      4
    query_start_loc  0     1                       5     6
    seq_lens         7     4                       5
    slot_mapping     2     20    21    22   23     8

Tokens that do not fit are scrolled to; only those in sight are drawn.
"""

from __future__ import annotations

from collections.abc import Callable

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.selection import Pick, Selection

__all__ = ["BatchDrawing"]

LABEL = 18
NARROWEST, WIDEST = 6, 12  # columns a token


class BatchDrawing(Drawing):
    name = "batch"
    title = "Batch: the packed row"
    help = (
        "Every column is a token that the model runs in this step; below, what the kernels get. "
        "← → choose a token, ↑ ↓ the request before or after."
    )
    fixed = (LABEL, 0)

    def lay_out(self) -> None:
        snapshot = self.view.snapshot
        count = snapshot.num_tokens
        slots = snapshot.packed.slot_mapping
        need = max(
            NARROWEST,
            len(str(int(slots.max(initial=0)))) + 1,
            len(str(max(snapshot.lengths.values(), default=0))) + 1,
        )
        room = (self.width - LABEL) // (count + 1) if count else WIDEST
        self.cell = max(need, min(WIDEST, room))
        self.q = [int(x) for x in snapshot.packed.query_start_loc]
        self.lines: list[tuple[str, Callable[[Line, int], None]]] = [
            ("request", self._requests),
            ("token", self._texts),
            ("position", self._positions),
            ("query_start_loc", self._query_start_loc),
            ("seq_lens", self._seq_lens),
            ("block_table", self._block_tables),
            ("slot_mapping", self._slots),
            ("samples", self._sampled),
        ]
        self.extent = (LABEL + count * self.cell + len(str(count)) + 1, len(self.lines))

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        row = y + scroll_y
        if row >= len(self.lines):
            return line
        look = self.view.look
        if not self.view.snapshot.num_tokens:
            if row == 0:
                error = self.view.snapshot.record.error
                text = (
                    "nothing runs in this step"
                    if error is None
                    else f"the forward failed: {clip(error, 120)}"
                )
                line.put(1, text, look.dim)
            return line
        label, draw = self.lines[row]
        draw(line, LABEL - scroll_x)
        line.fill(0, LABEL, " ", look.text)
        line.put(1, label, look.dim)
        return line

    def _columns(self, origin: int) -> range:
        """The packed tokens in sight."""
        first = max(0, (LABEL - origin) // self.cell)
        last = (self.width - origin) // self.cell + 1
        return range(first, min(last, self.view.snapshot.num_tokens))

    def _rows_in_sight(self, origin: int) -> range:
        columns = self._columns(origin)
        if not columns:
            return range(0)
        row_of = self.view.snapshot.row_of
        return range(int(row_of[columns[0]]), int(row_of[columns[-1]]) + 1)

    def _requests(self, line: Line, origin: int) -> None:
        snapshot, look = self.view.snapshot, self.view.look
        for r in self._rows_in_sight(origin):
            row, sign = snapshot.rows[r], self.view.sign(snapshot.rows[r].request_id)
            start, end = origin + self.q[r] * self.cell, origin + self.q[r + 1] * self.cell - 1
            chosen = row.request_id == self.view.selection.request_id
            style = look.chosen if chosen else look.solid(sign)
            line.fill(max(LABEL, start), end, " " if look.mode != "plain" else "─", style)
            text = self.view.letter(row.request_id)
            if row.num_tokens == 0:
                text += " idle slot"
            elif snapshot.decodes(row.request_id):
                text += " decode"
            else:
                last, total = row.start + row.num_tokens - 1, snapshot.num_prompt(row.request_id)
                text += f" prefill {row.start}…{last} of {max(total, last + 1)}"
            room = end - max(LABEL, start)
            if len(text) >= room:
                text = self.view.letter(row.request_id)
            line.put(max(LABEL, start), clip(text.rjust(len(text) + (room > len(text))), room), style, end)

    def _each(self, line: Line, origin: int, text: Callable[[int], str]) -> None:
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        chosen = place.query if place else None
        for t in self._columns(origin):
            name = snapshot.rows[int(snapshot.row_of[t])].request_id
            style = look.ink(self.view.sign(name)) if snapshot.packed.slot_mapping[t] >= 0 else look.dim
            x = origin + t * self.cell
            words = clip(text(t), self.cell - 1)
            if t == chosen:
                words = clip(f"▸{text(t)}", self.cell - 1) if look.mode == "plain" else words
                line.fill(max(LABEL, x), x + self.cell - 1, " ", look.chosen)
                style = look.chosen
            line.put(x, words, style)

    def _texts(self, line: Line, origin: int) -> None:
        self._each(line, origin, self._text)

    def _text(self, t: int) -> str:
        snapshot = self.view.snapshot
        found = snapshot.token_at(t)
        if found is None:
            return "pad"
        text = snapshot.text(*found)
        if not text:
            return f"#{int(snapshot.packed.token_ids[t])}"
        return text.strip(" ") or "␣"

    def _positions(self, line: Line, origin: int) -> None:
        packed = self.view.snapshot.packed
        self._each(
            line, origin, lambda t: str(int(packed.positions[t])) if packed.slot_mapping[t] >= 0 else "·"
        )

    def _slots(self, line: Line, origin: int) -> None:
        packed = self.view.snapshot.packed
        self._each(line, origin, lambda t: str(int(packed.slot_mapping[t])))

    def _row_values(self, line: Line, origin: int, value: Callable[[int], str]) -> None:
        snapshot, look = self.view.snapshot, self.view.look
        for r in self._rows_in_sight(origin):
            name = snapshot.rows[r].request_id
            chosen = name == self.view.selection.request_id
            x = max(LABEL, origin + self.q[r] * self.cell)
            end = origin + self.q[r + 1] * self.cell - 1
            style = look.ink(self.view.sign(name))
            line.put(x, clip(value(r), end - x), style + look.bold if chosen else style, end)

    def _query_start_loc(self, line: Line, origin: int) -> None:
        self._row_values(line, origin, lambda r: str(self.q[r]))
        end = origin + self.q[-1] * self.cell
        if end >= LABEL:
            line.put(end, f"{self.q[-1]}", self.view.look.text)

    def _seq_lens(self, line: Line, origin: int) -> None:
        packed = self.view.snapshot.packed
        self._row_values(line, origin, lambda r: str(int(packed.seq_lens[r])))

    def _block_tables(self, line: Line, origin: int) -> None:
        rows = self.view.snapshot.rows
        self._row_values(line, origin, lambda r: f"[{' '.join(map(str, rows[r].block_table))}]")

    def _sampled(self, line: Line, origin: int) -> None:
        snapshot, look = self.view.snapshot, self.view.look
        record = snapshot.record
        for r in self._rows_in_sight(origin):
            name = snapshot.rows[r].request_id
            if name not in record.sampled:
                continue
            text = record.sampled_texts.get(name, "").strip(" ") or f"#{record.sampled[name]}"
            x = origin + (self.q[r + 1] - 1) * self.cell
            if x >= LABEL:
                line.put(x, clip("→" + text, self.cell - 1), look.ink(self.view.sign(name)))

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        if x < LABEL:
            return None
        found = self.view.snapshot.token_at((x - LABEL + scroll_x) // self.cell)
        return Pick(Selection(*found)) if found else None

    def anchor(self) -> tuple[int, int, int, int] | None:
        if self.place is None:
            return None
        t = self.place.query
        if t is None:
            r = self.view.snapshot.row_index(self.place.request_id)
            if r is None:
                return None
            t = self.q[r]
        return LABEL + t * self.cell, 0, self.cell, 1

    def move(self, dx: int, dy: int) -> Pick | None:
        if dy:
            return self.step_request(dy)
        place = self.place
        if place is None or place.query is None:
            return self.first_pick()
        t = place.query + dx
        while 0 <= t < self.view.snapshot.num_tokens:
            found = self.view.snapshot.token_at(t)
            if found is not None:
                return Pick(Selection(*found))
            t += 1 if dx > 0 else -1
        return None

    def note(self) -> str:
        snapshot = self.view.snapshot
        padded = f", {snapshot.packed.num_padded} of them padding" if snapshot.packed.num_padded else ""
        return f"T = {snapshot.num_tokens} tokens{padded} · R = {len(snapshot.rows)} requests"
