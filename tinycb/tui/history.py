"""What the steps add up to: the life of every request, step by step, and where something happened.

`History.observe` takes the records in order, one at a time, so that a long trace can be taken in while its
first step is already on the screen. A life is kept as runs of equal steps: a request that decodes for a
thousand steps costs one entry. From it follow the tokens, TTFT and TPOT of a request as of any step.

Steps are indices into the source. Keeps no tokens and no blocks (`snapshot.py` does).
"""

from __future__ import annotations

import string
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["COUNTS", "EVENTS", "History", "Life", "Progress", "Refusal"]

# What a request did in a step, as one character.
WAITS, CHUNK, LAST_CHUNK, DECODE, STALLED, PREEMPTED, HELD = "wpPdsxh"
_SAMPLES = frozenset((ord(LAST_CHUNK), ord(DECODE)))

EVENTS = ("preemption", "finish", "admission", "refusal", "first token", "prefix hit", "abort", "error")
COUNTS = ("free", "waiting", "running", "tokens", "padded", "recomputed")
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


@dataclass(frozen=True, slots=True)
class Progress:
    """A request as of a step. Latencies are None before there is one; tpot is that of the tokens so far."""

    num_output: int
    ttft: float | None
    ttft_steps: int | None
    tpot: float | None
    tpot_steps: float | None


class Life:
    """One request from its arrival to its end. sign: the index of its letter and colour. row: its place
    among all that came.

    starts, codes: from step starts[i] on, until the next, the request did codes[i]. Before the first, it
    waits. arrived, first_token, ended: steps, -1 for not yet.
    """

    __slots__ = (
        "arrival_time", "arrived", "codes", "end", "ended", "first_token", "max_tokens", "num_prompt",
        "request_id", "row", "sign", "starts",
    )  # fmt: skip

    def __init__(self, new: NewRequest, sign: int, row: int, arrived: int) -> None:
        self.request_id = new.request_id
        self.sign = sign
        self.row = row
        self.arrived = arrived
        self.arrival_time = new.arrival_time
        self.num_prompt = len(new.prompt_token_ids)
        self.max_tokens = int(new.sampling_params.get("max_tokens", 0))
        self.starts = array("l")
        self.codes = bytearray()
        self.first_token = -1
        self.ended = -1
        self.end = ""

    def note(self, index: int, code: str) -> None:
        value = ord(code)
        if not self.codes or self.codes[-1] != value:
            self.starts.append(index)
            self.codes.append(value)

    def code_at(self, index: int) -> str:
        """What it did in a step; "" before it came and after it ended."""
        if index < self.arrived or (0 <= self.ended < index):
            return ""
        at = bisect_right(self.starts, index) - 1
        return chr(self.codes[at]) if at >= 0 else WAITS

    def runs(self, first: int, last: int) -> Iterator[tuple[int, int, str]]:
        """(from, to, code) of steps first … last, where it was there."""
        begin, end = max(first, self.arrived), last if self.ended < 0 else min(last, self.ended)
        at = bisect_right(self.starts, begin) - 1
        while begin <= end:
            code = chr(self.codes[at]) if at >= 0 else WAITS
            stop = self.starts[at + 1] - 1 if at + 1 < len(self.starts) else end
            yield begin, min(stop, end), code
            begin, at = stop + 1, at + 1

    def sampled(self, index: int) -> tuple[int, int]:
        """How many tokens it had sampled by the end of a step, and in which step the last."""
        count, last = 0, -1
        limit = index if self.ended < 0 else min(index, self.ended)
        for at, start in enumerate(self.starts):
            if start > limit:
                break
            if self.codes[at] in _SAMPLES:
                stop = self.starts[at + 1] - 1 if at + 1 < len(self.starts) else limit
                last = min(stop, limit)
                count += last - start + 1
        return count, last


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not let in."""

    request_id: str
    sign: int
    row: int
    arrived: int
    why: str


@dataclass
class History:
    """Grows record by record. lives: everybody who came, in that order, the refused included.

    ended: those whose answer was given back, in that order. refused: by id, the latest of it.
    counts: a number a step, by name. events: the steps in which something of a kind happened.
    """

    lives: list[Life | Refusal] = field(default_factory=list)
    ended: list[Life] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)
    num_steps: int = 0
    times: array[float] = field(default_factory=lambda: array("d"))
    counts: dict[str, array[int]] = field(default_factory=lambda: {name: array("l") for name in COUNTS})
    events: dict[str, array[int]] = field(default_factory=lambda: {kind: array("l") for kind in EVENTS})
    _by_id: dict[str, list[Life]] = field(default_factory=dict)
    _live: dict[str, Life] = field(default_factory=dict)
    _ran: set[str] = field(default_factory=set)
    _fading: list[Life] = field(default_factory=list)
    _signs: dict[str, int] = field(default_factory=dict)
    _used: set[int] = field(default_factory=set)
    _next_sign: int = 0

    def life(self, request_id: str, index: int | None = None) -> Life | None:
        """The request of this id as of a step. An id may be used again once its request has ended."""
        lives = self._by_id.get(request_id)
        if not lives:
            return None
        if index is not None:
            for life in reversed(lives):
                if life.arrived <= index:
                    return life
        return lives[-1]

    def sign(self, request_id: str) -> int:
        """The index of a request's letter: its own name where that is a letter, else the next free one."""
        found = self._signs.get(request_id)
        if found is None:
            index = _LETTERS.find(request_id) if len(request_id) == 1 else -1
            if index < 0 or index in self._used:
                while self._next_sign in self._used:
                    self._next_sign += 1
                index = self._next_sign
            self._used.add(index)
            found = self._signs[request_id] = index
        return found

    def present(self, index: int) -> list[str]:
        """Who is there in a step, and who had been refused by then, in order of arrival."""
        return [
            life.request_id
            for life in self.lives
            if (life.code_at(index) if isinstance(life, Life) else life.arrived <= index)
        ]

    def observe(self, record: StepRecord) -> None:
        """Take in the next step."""
        index = self.num_steps
        self.times.append(record.time_end)
        values = [record.num_free_blocks, record.num_waiting, len(record.running)]
        values += [sum(record.scheduled.values()), record.num_padded, record.num_recomputed]
        for steps, value in zip(self.counts.values(), values, strict=True):
            steps.append(value)
        for name in record.aborted:  # before this step, in which it does nothing
            if name in self._live and self._live[name].codes:
                self._live[name].note(index, STALLED)
            self._end(name, index, "aborted")
        for new in record.new_requests:
            life = Life(new, self.sign(new.request_id), len(self.lives), index)
            self.lives.append(life)
            self._by_id.setdefault(new.request_id, []).append(life)
            self._live[new.request_id] = life
        for name, why in record.refused.items():
            self.refused[name] = Refusal(name, self.sign(name), len(self.lives), index, why)
            self.lives.append(self.refused[name])
        self._note_steps(record, index)
        for name in record.finished:
            if name in self._live:
                self._live[name].end = record.finished[name]
        for name in record.returned:
            self._end(name, index, record.finished.get(name, ""))
        self._note_events(record, index)
        self.num_steps += 1

    def _end(self, name: str, index: int, how: str) -> None:
        life = self._live.pop(name, None)
        if life is not None:
            life.ended = index
            life.end = life.end or how
            self.ended.append(life)

    def _note_steps(self, record: StepRecord, index: int) -> None:
        live, sampled, computed = self._live, record.sampled, record.num_computed
        for life in self._fading:
            life.note(index, STALLED)
        self._fading = []
        for name, count in record.scheduled.items():
            life = live[name]
            if name not in sampled:
                life.note(index, CHUNK)
            elif count == 1 and computed[name] >= life.num_prompt:
                life.note(index, DECODE)
            else:
                life.note(index, LAST_CHUNK)
            if life.first_token < 0 and name in sampled:
                life.first_token = index
                self._note_event("first token", index)
        running = set(record.running)
        for name in self._ran - record.scheduled.keys():
            if name in live:
                held = live[name].end and name in running
                live[name].note(index, HELD if held else STALLED)
        for name in record.preempted:
            if name in live and name not in record.scheduled:
                live[name].note(index, PREEMPTED)
                self._fading.append(live[name])
        self._ran = set(record.scheduled)

    def _note_event(self, kind: str, index: int) -> None:
        steps = self.events[kind]
        if not steps or steps[-1] != index:
            steps.append(index)

    def _note_events(self, record: StepRecord, index: int) -> None:
        for kind, happened in (
            ("preemption", record.preempted),
            ("finish", record.finished),
            ("admission", record.admitted),
            ("refusal", record.refused),
            ("prefix hit", record.prefix_hits),
            ("abort", record.aborted),
            ("error", record.errors or record.error),
        ):
            if happened:
                self._note_event(kind, index)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────

    def next_event(self, kind: str | None, index: int, direction: int) -> int | None:
        """The nearest step after (1) or before (-1) `index` with an event of a kind; None: of any."""
        best: int | None = None
        for steps in self.events.values() if kind is None else (self.events[kind],):
            at = bisect_right(steps, index) if direction > 0 else bisect_left(steps, index) - 1
            if 0 <= at < len(steps):
                found = steps[at]
                best = found if best is None else min(best, found) if direction > 0 else max(best, found)
        return best

    def progress(self, life: Life, index: int) -> Progress:
        """The request's tokens and latencies as of the end of a step, defined as in `tracing.metrics`."""
        count, last = life.sampled(index)
        if not count or life.first_token < 0:
            return Progress(0, None, None, None, None)
        if 0 <= life.ended <= index:
            last = life.ended  # the answer was given back, which counts, and not its last token
        times, first = self.times, life.first_token
        tpot = tpot_steps = None
        if count > 1:
            tpot = (times[last] - times[first]) / (count - 1)
            tpot_steps = (last - first) / (count - 1)
        return Progress(count, times[first] - life.arrival_time, first - life.arrived + 1, tpot, tpot_steps)
