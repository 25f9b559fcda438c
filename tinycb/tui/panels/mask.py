"""The mask of the step, (T, S): which query may attend to which key.

A row is a packed query, a column a packed key. It is drawn from `query_start_loc` and `seq_lens`, as the
kernels find it: each row's keys begin where its request's do, and end at its own position. A line is a query
while they fit, else half-blocks hold two or more; a cell is half a key, one, or as many as it takes. Zoomed
in, it is scrolled instead.

    █ attends     · the same request, later: hidden by causality     blank: another request
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line
from tinycb.tui.selection import Pick, Selection

__all__ = ["MaskDrawing"]

LABEL = 6


@lru_cache(maxsize=1024)
def _both(upper: Style, lower: Style) -> Style:
    return upper + Style(bgcolor=lower.color)


class MaskDrawing(Drawing):
    name = "mask"
    title = "Mask (T, S)"
    help = (
        "Which query (row) may attend to which key (column). The arrows choose a cell: ↑ ↓ another query, "
        "← → another key. z zooms in and out."
    )
    fixed = (LABEL, 1)

    def lay_out(self) -> None:
        snapshot = self.view.snapshot
        self.rows, self.keys = snapshot.num_tokens, snapshot.num_keys
        width, height = self.width - LABEL, self.height - 1
        self.across = self.down = 1  # keys and queries a cell
        self.cell = 1  # columns a cell
        self.half = not self.view.zoomed and self.rows > height
        if self.view.zoomed or (2 * self.keys <= width and not self.half):
            self.cell = 2
        else:
            self.across = max(1, -(-self.keys // max(1, width)))
        if self.half:
            self.down = max(1, -(-self.rows // (2 * max(1, height))))
        lines = -(-self.rows // (self.down * (2 if self.half else 1)))
        self.extent = (LABEL + -(-self.keys // self.across) * self.cell, 1 + lines)
        self.spans = snapshot.spans

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        look = self.view.look
        if not self.rows or not self.keys:
            if y == 0:
                line.put(1, "no query in this step", look.dim)
            return line
        if y == 0:
            self._heading(line, scroll_x)
        elif self.half:
            self._half_line(line, (y - 1 + scroll_y) * 2 * self.down, scroll_x)
        else:
            self._full_line(line, y - 1 + scroll_y, scroll_x)
        return line

    def _heading(self, line: Line, scroll_x: int) -> None:
        """Whose keys are where."""
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        line.put(1, "q╲k", look.dim)
        starts = snapshot.key_start
        for r, row in enumerate(snapshot.rows):
            begin, end = (LABEL + int(s) // self.across * self.cell - scroll_x for s in starts[r : r + 2])
            style = look.ink(self.view.sign(row.request_id))
            line.fill(max(LABEL, begin), max(begin + 1, end), "─", style)
            if LABEL <= begin < self.width:
                line.put(begin, self.view.letter(row.request_id), style, max(begin + 1, end))
        if place is not None and place.key is not None:
            x = LABEL + place.key // self.across * self.cell - scroll_x
            text = f"{place.position}".rjust(self.cell) if len(str(place.position)) <= self.cell else "▼"
            if x >= LABEL:
                line.fill(x, x + self.cell, "▼", look.chosen)
                line.put(x, text, look.chosen, x + self.cell)

    def _edge(self, line: Line, t: int, chosen: bool) -> None:
        """Which query a line is."""
        snapshot, look = self.view.snapshot, self.view.look
        found = snapshot.token_at(t)
        name = snapshot.rows[int(snapshot.row_of[t])].request_id
        ink = look.ink(self.view.sign(name))
        first = t == 0 or snapshot.row_of[t - 1] != snapshot.row_of[t] or not self.half
        label = self.view.letter(name) if first or self.half else ""
        position = str(found[1]) if found else "pad"
        style = look.chosen if chosen else ink if found else look.dim
        line.fill(0, LABEL, " ", look.text)
        line.put(0, f"{label:<2}{position:>3}"[: LABEL - 1], style)

    def _full_line(self, line: Line, t: int, scroll_x: int) -> None:
        if t >= self.rows:
            return
        snapshot, look, place = self.view.snapshot, self.view.look, self.place
        r = int(snapshot.row_of[t])
        sign = self.view.sign(snapshot.rows[r].request_id)
        ink = look.ink(sign)
        begin, end = self.spans[t]
        last = int(snapshot.key_start[r + 1])
        x = LABEL - scroll_x

        def cells(a: int, b: int, glyph: str, style: Style) -> None:
            stop = -(-b // self.across)
            line.fill(max(LABEL, x + a // self.across * self.cell), x + stop * self.cell, glyph, style)

        cells(end, last, "·", ink)
        cells(begin, end, "█", ink)
        if place is not None:
            if place.key is not None:
                key = x + place.key // self.across * self.cell
                self._cross(line, max(LABEL, key), key + self.cell)
            if place.query == t:
                self._cross(line, LABEL, min(self.width, x + (self.extent[0] - LABEL)))
                if place.key is not None:
                    line.fill(max(LABEL, key), key + self.cell, "◆", look.chosen)
        self._edge(line, t, place is not None and place.query == t)

    def _cross(self, line: Line, start: int, stop: int) -> None:
        """The row or the column of the selected token."""
        look = self.view.look
        if look.mode != "plain":
            line.tint(start, stop, Style(bgcolor=look.colours["cursor"]))
            return
        for x in range(max(0, start), min(stop, line.width)):
            if line.cells[x] == " ":
                line.cells[x] = "┊"

    def _half_line(self, line: Line, t: int, scroll_x: int) -> None:
        """Two bands of queries: the upper half of the line and the lower."""
        if t >= self.rows:
            return
        look, place = self.view.look, self.place
        width = min(self.width, self.extent[0] - scroll_x) - LABEL
        upper, lower = (self._signs(self._band(q), scroll_x, width) for q in (t, t + self.down))
        for x, (up, down) in enumerate(zip(upper, lower, strict=True), start=LABEL):
            if up is None and down is None:
                continue
            if up is not None and down is not None:
                style = look.ink(up)
                line.put(x, "█", style) if up == down else line.put(x, "▀", _both(style, look.ink(down)))
            elif up is not None:
                line.put(x, "▀", look.ink(up))
            elif down is not None:
                line.put(x, "▄", look.ink(down))
        chosen = place is not None and place.query is not None and t <= place.query < t + 2 * self.down
        if place is not None and place.key is not None:
            key = LABEL + place.key // self.across - scroll_x
            self._cross(line, max(LABEL, key), key + 1)
        if chosen:
            self._cross(line, LABEL, min(self.width, self.extent[0] - scroll_x))
            if place is not None and place.key is not None and key >= LABEL:
                line.put(key, "◆", look.chosen)
        self._edge(line, t if not chosen or place is None or place.query is None else place.query, chosen)

    def _band(self, t: int) -> list[tuple[int, int, int]]:
        """(begin, end, sign) of the keys that any query of a band attends to."""
        snapshot = self.view.snapshot
        found: list[tuple[int, int, int]] = []
        for query in range(t, min(t + self.down, self.rows)):
            begin, end = self.spans[query]
            if end <= begin:
                continue
            if found and found[-1][0] == begin:
                found[-1] = (begin, max(end, found[-1][1]), found[-1][2])
            else:
                name = snapshot.rows[int(snapshot.row_of[query])].request_id
                found.append((begin, end, self.view.sign(name)))
        return found

    def _signs(self, band: list[tuple[int, int, int]], scroll_x: int, width: int) -> list[int | None]:
        """For each cell in sight, whose keys a band of queries attends to there."""
        signs: list[int | None] = [None] * width
        for begin, end, sign in band:
            first = max(0, begin // self.across - scroll_x)
            last = min(width, -(-end // self.across) - scroll_x)
            if first < last:
                signs[first:last] = [sign] * (last - first)
        return signs

    def _query_of(self, y: int, scroll_y: int) -> int:
        return (y - 1 + scroll_y) * self.down * (2 if self.half else 1)

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        snapshot = self.view.snapshot
        if x < LABEL:
            found = snapshot.token_at(self._query_of(y, scroll_y)) if y > 0 else None
        else:
            found = snapshot.key_at((x - LABEL + scroll_x) // self.cell * self.across)
        return Pick(Selection(*found)) if found else None

    def anchor(self) -> tuple[int, int, int, int] | None:
        place = self.place
        if place is None or place.key is None:
            return None
        query = place.query if place.query is not None else place.readers[0] if place.readers else 0
        x = LABEL + place.key // self.across * self.cell
        return x, 1 + query // (self.down * (2 if self.half else 1)), self.cell, 1

    def move(self, dx: int, dy: int) -> Pick | None:
        if dy and self.place is not None and self.place.query is not None:
            found = self.view.snapshot.token_at(self.place.query + dy)
            return Pick(Selection(*found)) if found else None
        if dy:
            return self.step_request(dy)
        place = self.place
        if place is None or place.key is None:
            return self.first_pick()
        found = self.view.snapshot.key_at(place.key + dx)
        return Pick(Selection(*found)) if found else None

    def note(self) -> str:
        scale = f" · a cell is {self.across} keys" if self.across > 1 else ""
        if self.half:
            scale = f" · a cell is {self.across} keys × {2 * self.down} queries"
        return f"T × S = {self.rows} × {self.keys} · █ attends · hidden: later tokens{scale}"
