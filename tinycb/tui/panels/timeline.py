"""Requests × steps: what each did in each step, with the cursor on the step that is shown.

         0    ▼5        10
    A   ▸██◆▄▄▄▄▄▄▄▄●          arrives, prefill, first token, decodes, done
    B   ····▸┄┄██◆▄▄×┄┄        waits, is preempted, waits again

Drawn for the columns in sight only, so a run of thousands of steps costs no more than a short one.
"""

from __future__ import annotations

from rich.style import Style

from tinycb.tui.drawing import Drawing
from tinycb.tui.history import Life, Refusal
from tinycb.tui.line import Line, clip
from tinycb.tui.look import Look
from tinycb.tui.selection import Pick, Selection

__all__ = ["TimelineDrawing", "glyph_of"]

ARRIVES, FIRST_TOKEN, DONE, REFUSED = "▸", "◆", "●", "⊘"
WIDEST = 4  # columns a step


def glyph_of(code: str, sign: int, look: Look) -> tuple[str, Style]:
    """The glyph and the style of what a request did in a step (`tinycb.tui.history`)."""
    glyphs = look.glyphs
    if code in "pP":
        return glyphs.prefill, look.ink(sign)
    if code == "d":
        return glyphs.decode, look.ink(sign)
    if code == "x":
        return glyphs.preempted, look.style("bad", bold=True)
    if code == "h":
        return glyphs.padding, look.dim
    return glyphs.waits, look.dim


class TimelineDrawing(Drawing):
    name = "timeline"
    title = "Timeline"
    help = "Each line is a request, each column a step. ↑ ↓ choose a request, ← → move through the steps."

    def lay_out(self) -> None:
        history = self.view.history
        self.rows = history.lives
        names = [life.request_id for life in self.rows[:200]]
        longest = max((len(name) for name in names), default=1)
        self.named = any(self.view.letter(name) != name for name in names)
        self.label = 3 + (min(longest, 14) + 1 if self.named else 2)
        self.fixed = (self.label, 1)
        steps = max(1, self.view.num_steps)
        self.cell = max(1, min(WIDEST, (self.width - self.label) // steps))
        self.extent = (self.label + steps * self.cell, 1 + len(self.rows))

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        if y == 0:
            self._ruler(line, scroll_x)
            return line
        row = y - 1 + scroll_y
        if row < len(self.rows):
            self._life(line, self.rows[row], scroll_x)
        return line

    def _x(self, index: int, scroll_x: int) -> int:
        return self.label + index * self.cell - scroll_x

    def _window(self, scroll_x: int) -> tuple[int, int]:
        """The first and the last step of which something is in sight."""
        first = scroll_x // self.cell
        last = (scroll_x + self.width - self.label - 1) // self.cell
        return first, min(last, self.view.num_steps - 1)

    def _ruler(self, line: Line, scroll_x: int) -> None:
        look, view = self.view.look, self.view
        line.put(0, "step", look.dim, self.label)
        first, last = self._window(scroll_x)
        offset = view.snapshot.step - view.snapshot.index
        every = 5 if self.cell > 2 else 10
        cursor = f"▼{view.snapshot.step}"
        at = min(self._x(view.snapshot.index, scroll_x), self.width - len(cursor))
        for index in range(first, last + 1):
            number, x = str(index + offset), self._x(index, scroll_x)
            beside = x + len(number) < at or x > at + len(cursor)
            if (index + offset) % every == 0 and x >= self.label and beside:
                line.put(x, number, look.dim)
        if at >= self.label:
            line.put(at, cursor, look.style("accent", bold=True))

    def _life(self, line: Line, life: Life | Refusal, scroll_x: int) -> None:
        look, view = self.view.look, self.view
        chosen = life.request_id == view.selection.request_id
        style = look.chosen if chosen else look.ink(life.sign)
        line.put(0, look.letter(life.sign).ljust(2), style)
        if self.named:
            line.put(3, clip(life.request_id, self.label - 4), look.text if chosen else look.dim)
        first, last = self._window(scroll_x)
        if isinstance(life, Refusal):
            self._mark(line, life.arrived, REFUSED, look.style("bad", bold=True), scroll_x)
        else:
            for begin, end, code in life.runs(first, last):
                glyph, ink = glyph_of(code, life.sign, look)
                start = max(self.label, self._x(begin, scroll_x))
                line.fill(start, self._x(end + 1, scroll_x), glyph, ink)
            ink = look.ink(life.sign) + Style(bold=True)
            if (life.codes and life.starts[0] > life.arrived) or not life.codes:
                self._mark(line, life.arrived, ARRIVES, ink, scroll_x)
            self._mark(line, life.first_token, FIRST_TOKEN, ink, scroll_x, at_end=True)
            if life.end:
                self._mark(line, life.ended, DONE, ink, scroll_x, at_end=True)
        at = self._x(view.snapshot.index, scroll_x)
        if at >= self.label and look.mode != "plain":
            line.tint(at, at + self.cell, Style(bgcolor=look.colours["cursor"]))
        elif at >= self.label and chosen:
            line.tint(at, at + self.cell, Style(reverse=True))

    def _mark(
        self, line: Line, index: int, mark: str, style: Style, scroll_x: int, at_end: bool = False
    ) -> None:
        x = self._x(index, scroll_x) + (self.cell - 1 if at_end else 0)
        if index >= 0 and x >= self.label:
            line.put(x, mark, style)

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        row = y - 1 + scroll_y
        selection = self.view.selection
        if y > 0 and row < len(self.rows):
            selection = Selection(self.rows[row].request_id)
        elif y > 0:
            return None
        if x < self.label:
            return Pick(selection)
        index = (x - self.label + scroll_x) // self.cell
        return Pick(selection, index) if index < self.view.num_steps else None

    def _row_of_interest(self) -> int | None:
        """The selected request if it is there in this step, else somebody who is."""
        index, history = self.view.snapshot.index, self.view.history
        selected = self.view.selection.request_id
        life = history.life(selected, index) if selected is not None else None
        if life is not None and life.code_at(index):
            return life.row
        refusal = history.refused.get(selected or "")
        if refusal is not None and refusal.arrived == index:
            return refusal.row
        running = [history.life(name, index) for name in self.view.snapshot.record.running]
        return min((life.row for life in running if life is not None), default=None)

    def anchor(self) -> tuple[int, int, int, int] | None:
        if not self.rows:
            return None
        row = self._row_of_interest()
        x = self.label + self.view.snapshot.index * self.cell
        return x, 1 + (row or 0), self.cell, 1

    def move(self, dx: int, dy: int) -> Pick | None:
        if not self.rows:
            return None
        index = max(0, min(self.view.num_steps - 1, self.view.snapshot.index + dx))
        selected = self.view.selection.request_id or ""
        entry = self.view.history.refused.get(selected) or self.view.history.life(selected, index)
        row = entry.row if entry is not None else 0
        row = max(0, min(len(self.rows) - 1, row + dy))
        selection = Selection(self.rows[row].request_id) if dy else self.view.selection
        return Pick(selection, index)

    def note(self) -> str:
        glyphs = self.view.look.glyphs
        return (
            f"{ARRIVES} arrives {glyphs.waits} waits {glyphs.prefill} prefill {FIRST_TOKEN} first token "
            f"{glyphs.decode} decode {glyphs.preempted} preempted {glyphs.padding} idle slot "
            f"{DONE} done {REFUSED} refused"
        )
