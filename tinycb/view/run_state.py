"""What the StepRecords of a run add up to so far: who is where, how far, and what each did in each step.

`RunState.observe` takes the records in order; `RunState.frame` freezes all that a picture of the latest step
needs, so that it can be drawn later or elsewhere. Draws nothing (`picture.py`, `timeline.py`) and computes no
latency (`tinycb.tracing.metrics`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

from tinycb.tracing.records import StepRecord
from tinycb.view.signs import letter

__all__ = ["Frame", "RequestView", "RunInfo", "RunState", "Segment"]

LOG_LENGTH = 24  # sentences that a frame carries
RECENT = 40  # requests that are over and still in a frame


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What does not change during a run. budget: tokens a step, or None where the policy has none."""

    model: str
    batching: str
    attention: str
    num_blocks: int
    budget: int | None = None


@dataclass(slots=True)
class RequestView:
    """One request as a picture shows it.

    history: one character a step since `first_step`: p prefill, d decode, w waits, h holds a slot and idles,
    x preempted in this step. Of a request that waits now, the waiting at the end is left out.
    """

    index: int
    request_id: str
    num_prompt: int
    max_tokens: int
    first_step: int
    state: str = "waits"
    computed: int = 0
    output: int = 0
    blocks: int = 0
    history: str = ""

    @property
    def letter(self) -> str:
        return letter(self.index)

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "aborted", "failed")


@dataclass(frozen=True, slots=True)
class Segment:
    """One request's part of the packed row: `padding` tokens that belong to nobody, then its own."""

    index: int
    num_tokens: int
    decodes: bool
    padding: int = 0

    @property
    def letter(self) -> str:
        return letter(self.index)


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything a picture of one step shows. seconds: since the run began. log: (step, sentence)."""

    info: RunInfo
    step: int
    seconds: float
    segments: tuple[Segment, ...]
    blocks_used: int
    requests: tuple[RequestView, ...]
    num_waiting: int
    num_over: int
    output_tokens: int
    log: tuple[tuple[int, str], ...]

    @property
    def num_tokens(self) -> int:
        return sum(segment.num_tokens for segment in self.segments)

    @property
    def num_padded(self) -> int:
        return sum(segment.padding for segment in self.segments)


@dataclass(slots=True)
class RunState:
    """Grows record by record. Requests keep the letter of their place in `names`, or of their arrival."""

    info: RunInfo
    names: Iterable[str] = ()
    requests: dict[str, RequestView] = field(default_factory=dict)
    num_steps: int = 0
    num_over: int = 0
    output_tokens: int = 0
    log: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=LOG_LENGTH))
    _indices: dict[str, int] = field(default_factory=dict)
    _live: dict[str, RequestView] = field(default_factory=dict)
    _left: deque[RequestView] = field(default_factory=lambda: deque(maxlen=RECENT))
    _last: StepRecord | None = None
    _start: float | None = None
    _waits: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._indices = {name: index for index, name in enumerate(self.names)}

    def observe(self, record: StepRecord) -> None:
        """Take the next record in."""
        self._last = record
        if self._start is None:
            self._start = record.time_start
        for new in record.new_requests:
            index = self._indices.setdefault(new.request_id, len(self._indices))
            limit = int(new.sampling_params.get("max_tokens", 0))
            view = RequestView(index, new.request_id, len(new.prompt_token_ids), limit, record.step)
            self.requests[new.request_id] = self._live[new.request_id] = view
        running, preempted = set(record.running), set(record.preempted)
        for name in record.aborted:
            if name in self._live:
                self._live[name].state = "aborted"
                self._leave(name)
        for name in running | preempted:  # who only waits gets no mark: there may be thousands
            if name in self._live:
                self._advance(self._live[name], name, record, running)
        for name in record.returned:
            if name in self._live:
                self._leave(name)
        self.output_tokens += len(record.sampled)
        self.num_steps = record.step + 1
        self._note(record)

    def _leave(self, name: str) -> None:
        self._left.append(self._live.pop(name))
        self.num_over += 1

    def _advance(self, view: RequestView, name: str, record: StepRecord, running: set[str]) -> None:
        tokens = record.scheduled.get(name, 0)
        code = "w"
        if tokens:
            before = record.num_computed.get(name, 0)
            view.computed = before + tokens
            code = "d" if _decodes(view, before, tokens) else "p"
        elif name not in running:
            code, view.computed, view.blocks = "x", 0, 0
        elif view.is_over and name in running:
            code = "h"
        view.blocks += len(record.blocks_allocated.get(name, ()))
        if name in record.prefix_hits and record.block_size:
            view.blocks += record.prefix_hits[name] // record.block_size
        view.history = view.history.ljust(record.step - view.first_step, "w") + code
        if name in record.sampled:
            view.output = view.computed - view.num_prompt + 1
        if not view.is_over:
            view.state = {"p": "prefill", "d": "decode", "w": "waits", "x": "preempted"}[code]
        if name in record.finished:
            view.state = "failed" if record.finished[name] == "error" else "done"
        if name in record.returned:
            view.blocks = 0

    def _note(self, record: StepRecord) -> None:
        """Keep the sentences; one that only repeats why somebody still waits is said once."""
        waits = {}
        for decision in record.decisions:
            if decision.action in ("wait", "hold"):
                waits[decision.request_id] = decision.reason.value
                if self._waits.get(decision.request_id) == decision.reason.value:
                    continue
            self.log.append((record.step, decision.sentence))
        self._waits = waits

    def segments(self, record: StepRecord) -> tuple[Segment, ...]:
        """The packed row of a record whose requests have all been observed."""
        parts = []
        rows = record.rows if record.pad else ()
        names = [row.request_id for row in rows] or list(record.scheduled)
        width = max(record.scheduled.values(), default=0) if record.pad else 0
        for name in names:
            tokens = record.scheduled.get(name, 0)
            view = self.requests.get(name)
            if view is None:
                continue
            decodes = _decodes(view, record.num_computed.get(name, 0), tokens)
            parts.append(Segment(view.index, tokens, decodes, max(0, width - tokens)))
        return tuple(parts)

    def frame(self) -> Frame:
        """The latest step, frozen: all requests under way, and those that left last."""
        record = self._last or StepRecord(step=0)
        shown = sorted((*self._left, *self._live.values()), key=lambda view: view.index)
        return Frame(
            info=self.info,
            step=record.step,
            seconds=record.time_end - (self._start or 0.0),
            segments=self.segments(record),
            blocks_used=self.info.num_blocks - record.num_free_blocks if self._last else 0,
            requests=tuple(copy(view) for view in shown),
            num_waiting=record.num_waiting,
            num_over=self.num_over,
            output_tokens=self.output_tokens,
            log=tuple(self.log),
        )


def _decodes(view: RequestView, before: int, tokens: int) -> bool:
    """One token past the prompt is a decode; more is a prompt, a chunk of one, or a recompute."""
    return tokens == 1 and before >= view.num_prompt
