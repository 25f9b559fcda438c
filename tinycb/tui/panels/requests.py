"""Every request that is here: state, tokens, blocks, and its latencies so far, in steps and in seconds."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tinycb.request import RequestStatus
from tinycb.tui.drawing import Drawing
from tinycb.tui.history import Life, Progress
from tinycb.tui.line import Line, clip
from tinycb.tui.selection import Pick, Selection

__all__ = ["RequestsDrawing", "duration"]

LOOKED_THROUGH = 64  # places of the queue; each may have to be read from the file
_WIDE = [("state", 10), ("computed", 10), ("output", 8), ("blocks", 7), ("TTFT", 14), ("TPOT", 14)]
_NARROW = [("state", 9), ("computed", 9), ("output", 7), ("blk", 4), ("TTFT", 8), ("TPOT", 8)]
RECENT = 6  # of those that ended, how many are still listed


@dataclass(frozen=True, slots=True)
class _Entry:
    request_id: str
    state: str
    computed: int
    total: int
    output: int
    limit: int
    blocks: int
    progress: Progress | None


def duration(seconds: float | None) -> str:
    """Three digits: `1.23s`, `45.6ms`; a dash where there is none."""
    if seconds is None:
        return "-"
    number, unit = (seconds, "s") if seconds >= 0.9995 else (seconds * 1000, "ms")
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f}{unit}"


class RequestsDrawing(Drawing):
    name = "requests"
    title = "Requests"
    help = "Who is here in this step, in batch order, then the queue, then who ended last. ↑ ↓ choose one."
    fixed = (0, 1)

    def lay_out(self) -> None:
        snapshot, history = self.view.snapshot, self.view.history
        self.running = snapshot.record.running
        self.waiting = snapshot.state.waiting
        at = bisect_right(history.ended, snapshot.index, key=lambda life: life.ended)
        running = set(self.running)
        recent = history.ended[max(0, at - RECENT) : at]
        self.over = [life for life in reversed(recent) if life.request_id not in running]
        self._entries: dict[int, _Entry] = {}
        self.count = len(self.running) + len(self.waiting) + len(self.over)
        shown = (self._entry(i).request_id for i in range(min(self.count, self.height)))
        self.named = any(self.view.letter(name) != name for name in shown)
        self.wide = self.width >= 67 + (8 if self.named else 0)
        self.columns: list[tuple[str, int]] = [("", 3)]
        if self.named:
            self.columns.append(("request", 10 if self.wide else 8))
        self.columns += _WIDE if self.wide else _NARROW
        self.extent = (self.width, 1 + self.count)

    def _entry(self, i: int) -> _Entry:
        """The i-th line: of those that run, then of the queue, then of those that are over."""
        found = self._entries.get(i)
        if found is None:
            running, waiting = len(self.running), len(self.waiting)
            if i < running:
                found = self._make(self.running[i], self._running_state(self.running[i]))
            elif i < running + waiting:
                request = self.waiting[i - running]
                preempted = request.status is RequestStatus.PREEMPTED
                found = self._make(request.request_id, "preempted" if preempted else "waits")
            else:
                life = self.over[i - running - waiting]
                found = self._make(life.request_id, "aborted" if life.end == "aborted" else "done", life)
            self._entries[i] = found
        return found

    def _running_state(self, name: str) -> str:
        record = self.view.snapshot.record
        if name in record.finished:
            return "finishes"
        life = self.view.history.life(name, self.view.snapshot.index)
        if name not in record.scheduled:
            return "idle" if life is not None and life.end else "stalled"
        return "decode" if self.view.snapshot.decodes(name) else "prefill"

    def _make(self, name: str, state: str, life: Life | None = None) -> _Entry:
        snapshot, history = self.view.snapshot, self.view.history
        life = life or history.life(name, snapshot.index)
        request = snapshot.requests.get(name)
        known = life is not None and snapshot.index < history.num_steps
        progress = history.progress(life, snapshot.index) if life is not None and known else None
        row = snapshot.row_index(name)
        if row is not None and snapshot.rows[row].num_tokens:
            total = len(snapshot.rows[row].token_ids)
        else:
            total = request.num_tokens if request else life.num_prompt if life else 0
        output = max(0, total - snapshot.num_prompt(name)) if request or row is not None else 0
        if state in ("done", "aborted") and progress is not None and life is not None:
            output = progress.num_output
            total = life.num_prompt + output
        computed = snapshot.lengths.get(name, 0)
        if state in ("done", "aborted"):
            computed = total
        return _Entry(
            name, state, computed, total, output, life.max_tokens if life else 0,
            len(snapshot.tables.get(name, ())), progress,
        )  # fmt: skip

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line, look = self.blank(), self.view.look
        if y == 0:
            x = 1
            for title, width in self.columns:
                line.put(x, title if title in ("request", "state") else title.rjust(width - 1), look.dim)
                x += width
            return line
        at = y - 1 + scroll_y
        if at < self.count:
            self._entry_line(line, self._entry(at))
        return line

    def _entry_line(self, line: Line, entry: _Entry) -> None:
        look = self.view.look
        sign = self.view.sign(entry.request_id)
        chosen = entry.request_id == self.view.selection.request_id
        style = look.dim if entry.state in ("done", "aborted", "waits", "idle") else look.text
        if entry.state == "preempted":
            style = look.style("bad")
        line.put(1, look.letter(sign), look.chosen if chosen else look.solid(sign))
        cells = [clip(entry.request_id, self.columns[1][1] - 1)] if self.named else []
        cells += [
            entry.state,
            f"{entry.computed}/{entry.total}",
            f"{entry.output}/{entry.limit}",
            str(entry.blocks),
        ]
        progress = entry.progress
        if progress is None:
            cells += ["…", "…"]
        elif self.wide:
            cells.append(
                "-" if progress.ttft_steps is None else f"{duration(progress.ttft)} {progress.ttft_steps}st"
            )
            cells.append(
                "-"
                if progress.tpot_steps is None
                else f"{duration(progress.tpot)} {progress.tpot_steps:.1f}st"
            )
        else:
            cells += [duration(progress.ttft), duration(progress.tpot)]
        x = 1 + self.columns[0][1]
        for (title, width), cell in zip(self.columns[1:], cells, strict=True):
            text = cell if title in ("request", "state") else cell.rjust(width - 1)
            line.put(x, text, style)
            x += width
        if chosen:
            line.put(0, "▸", look.label)

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        at = y - 1 + scroll_y
        return Pick(Selection(self._entry(at).request_id)) if y > 0 and at < self.count else None

    def _chosen(self) -> int | None:
        selected = self.view.selection.request_id
        if selected in self.running:
            return self.running.index(selected)
        looked = len(self.running) + min(len(self.waiting), LOOKED_THROUGH)
        over = range(len(self.running) + len(self.waiting), self.count)
        for i in (*range(len(self.running), looked), *over):
            if self._entry(i).request_id == selected:
                return i
        return None

    def anchor(self) -> tuple[int, int, int, int] | None:
        at = self._chosen()
        return None if at is None else (0, 1 + at, 1, 1)

    def move(self, dx: int, dy: int) -> Pick | None:
        if not self.count:
            return None
        at = self._chosen()
        at = 0 if at is None else max(0, min(self.count - 1, at + dx + dy))
        return Pick(Selection(self._entry(at).request_id))

    def note(self) -> str:
        return "TTFT and TPOT so far" + (": time and steps (st)" if self.wide else "")
