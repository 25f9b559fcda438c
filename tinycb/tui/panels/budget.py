"""Two bars: the step's tokens against its budget, and the tokens of all requests against the pool.

tokens  ▄▄▄██████████░░░░░    3 decode + 10 prefill of 18
KV      ████████████░░░░░░    Σ lengths 38 of N_max 60, in 11 of 15 blocks
"""

from __future__ import annotations

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.selection import Pick, Selection

__all__ = ["BudgetDrawing"]

LABEL = 8


class BudgetDrawing(Drawing):
    name = "budget"
    title = "Budgets"
    help = "The token budget of this step, and the KV cache: tokens that are in it, and blocks that are used."

    def lay_out(self) -> None:
        snapshot = self.view.snapshot
        record = snapshot.record
        self.decode = sum(snapshot.decodes(name) for name in record.scheduled)
        self.prefill = sum(record.scheduled.values()) - self.decode
        chunked = self.view.config("batching") == "chunked"
        self.limit = self.view.config("max_num_batched_tokens") if chunked else None
        self.tokens = sum(snapshot.lengths.values())
        self.capacity = snapshot.num_blocks * snapshot.block_size
        self.room = max(10, self.width - LABEL - 1)
        self.extent = (self.width, 5)

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        draw = (self._step_bar, self._step_words, self._kv_bar, self._block_bar, self._kv_words)
        if y + scroll_y < len(draw):
            draw[y + scroll_y](line)
        return line

    def _label(self, line: Line, text: str) -> None:
        line.put(1, text, self.view.look.dim)

    def _step_bar(self, line: Line) -> None:
        look, padded = self.view.look, self.view.snapshot.record.num_padded
        self._label(line, "step")
        total = self.limit or self.decode + self.prefill + padded
        x = LABEL
        done = 0
        for count, glyph, style in (
            (self.decode, look.glyphs.decode, look.style("good")),
            (self.prefill, look.glyphs.prefill, look.label),
            (padded, look.glyphs.padding, look.style("bad")),
        ):
            done += count
            stop = LABEL + min(self.room, -(-done * self.room // total)) if total and count else x
            line.fill(x, stop, glyph, style)
            x = max(x, stop)
        line.fill(x, LABEL + self.room, look.glyphs.free, look.faint)

    def _step_words(self, line: Line) -> None:
        look, padded = self.view.look, self.view.snapshot.record.num_padded
        glyphs = look.glyphs
        words = f"{glyphs.decode} {self.decode} decode + {glyphs.prefill} {self.prefill} prefill"
        used = self.decode + self.prefill
        if padded:
            words += f" + {glyphs.padding} {padded} padding"
        if self.limit:
            words += f" of {self.limit}, {self.limit - used} left"
        else:
            words += f" = {used + padded} tokens, no budget"
        line.put(LABEL, clip(words, self.room), look.text)

    def _kv_bar(self, line: Line) -> None:
        """The tokens, in the colours and letters of their requests."""
        snapshot, look = self.view.snapshot, self.view.look
        self._label(line, "tokens")
        x, done = LABEL, 0
        for name, length in snapshot.lengths.items():
            done += length
            stop = min(LABEL + self.room, LABEL + round(done * self.room / self.capacity))
            chosen = name == self.view.selection.request_id
            style = look.chosen if chosen else look.solid(self.view.sign(name))
            line.fill(x, stop, self.view.letter(name)[0], style)
            x = max(x, stop)
        line.fill(x, LABEL + self.room, look.glyphs.free, look.faint)

    def _block_bar(self, line: Line) -> None:
        snapshot, look = self.view.snapshot, self.view.look
        self._label(line, "blocks")
        used, total = snapshot.num_held, snapshot.num_blocks
        cached = len(snapshot.state.cached - snapshot.owners.keys())
        x = LABEL + -(-used * self.room // total)
        line.fill(LABEL, x, look.glyphs.prefill, look.label)
        middle = min(LABEL + self.room, x + cached * self.room // total)
        line.fill(x, middle, "▒", look.dim)
        line.fill(middle, LABEL + self.room, look.glyphs.free, look.faint)

    def _kv_words(self, line: Line) -> None:
        snapshot, look = self.view.snapshot, self.view.look
        blocks = f"{snapshot.num_held} of {snapshot.num_blocks} blocks"
        words = f"Σ lengths {self.tokens} of {self.capacity} · {blocks}"
        if self.room >= 60:
            words = f"Σ of lengths {self.tokens} of N_max {self.capacity} tokens · {blocks}"
        line.put(LABEL, clip(words, self.room), look.text)

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        if y + scroll_y != 2:
            return None
        done = 0
        for name, length in self.view.snapshot.lengths.items():
            done += length
            if LABEL <= x < LABEL + round(done * self.room / self.capacity):
                return Pick(Selection(name))
        return None

    def move(self, dx: int, dy: int) -> Pick | None:
        return self.step_request(dx + dy)
