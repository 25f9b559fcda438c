"""A run as Perfetto draws it: which track, slice, instant, counter and flow becomes of what.

    smollm2-135m, chunked
      engine            a slice a step, with its counts and all of its decisions
      blocks in use …   counters: blocks, tokens of the budget, padding, requests that run and that wait
      A                 waiting, then a slice a step: prefill chunk, decode, stalled; preempted, held
      B                 instants: arrival, first token, preemption, finish, refused, …
                        and a flow from each preemption to the step in which the request is back

Every slice carries the numbers of its step and the sentences of its decisions. Goes through the records once
and holds only what is under way. Next: `perfetto_file.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from tinycb.export.notes import Why, latencies, work
from tinycb.export.perfetto_file import Notes, PerfettoFile
from tinycb.tracing.header import config_or_similar
from tinycb.tracing.metrics import MetricsCollector
from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["PerfettoExport", "title_of"]

_ENGINE, _COUNTERS, _REQUESTS = 0, 1, 10  # places below the run
_RARE = ("num_padded", "num_recomputed")  # counts of a step that are mostly 0
_MOST_SECONDS = 9e9  # what 64 bits of nanoseconds hold


@dataclass(slots=True)
class _Life:
    """A request under way. state: its slice that is open from step to step: waiting, preempted or held."""

    track: int
    num_prompt: int
    state: str = ""
    has_token: bool = False
    flow: int = 0  # from its preemption to its return


def title_of(header: Mapping[str, Any]) -> str:
    """The run in a few words, and what its seconds are unless a clock has measured them."""
    model, batching = str(header.get("model", "a model")), str(header["config"].get("batching", ""))
    engine = f"{header['engine']}: " if header.get("engine") else ""
    times = ""
    if model.startswith("scripted"):
        times = ", times made up"
    elif model.endswith("modelled"):
        model = model.removesuffix("modelled").rstrip(", ")
        times = ", times modelled"
    return f"{engine}{model}, {batching.rpartition(':')[2]}{times}"


class PerfettoExport:
    """Takes in the records of a run, in order, and writes each to the stream as it comes.

    header: the trace's. Raises OSError as the stream does, and ValueError if the header's configuration has a
    value that is not known here.
    """

    def __init__(self, stream: IO[bytes], header: Mapping[str, Any]) -> None:
        config = config_or_similar(header)
        self.num_requests = 0
        self._file = file = PerfettoFile(stream)
        self._metrics = MetricsCollector(config)
        self._num_blocks = int(header["num_blocks"])
        self._lives: dict[str, _Life] = {}
        self._uses: Counter[str] = Counter()  # how often a name was a track's
        self._num_flows = 0
        self._origin: float | None = None
        self._now = 0.0
        self._run = file.track(title_of(header))
        self._engine = file.track("engine", self._run, _ENGINE)
        budget = f" of the budget of {config.max_num_batched_tokens}" if config.batching == "chunked" else ""
        self._names = {
            "blocks": f"blocks in use of {self._num_blocks}",
            "tokens": f"tokens{budget or ' in the step'}",
            "padding": "tokens of padding",
            "running": "requests that run",
            "waiting": "requests that wait",
        }
        self._counters: dict[str, tuple[int, int]] = {}  # track and latest value

    @property
    def num_events(self) -> int:
        return self._file.num_events

    def observe(self, record: StepRecord) -> None:
        """Write the next step."""
        self._metrics.observe(record)
        if self._origin is None:
            arrivals = [new.arrival_time for new in record.new_requests]
            self._origin = min([record.time_start, *arrivals])
        start = self._now = self._time(record.time_start)
        end = self._now = self._time(record.time_end)
        why = Why(record)

        self._draw_step(record, start, end)
        self._come_and_go(record, start, why)
        for name in record.preempted:
            self._preempt(name, record, start, why)
        self._draw_requests(record, start, end, why)
        self._end_requests(record, end, why)
        self._file.flush()

    def _time(self, time: float) -> float:
        """Seconds from the beginning, and never before what has been drawn."""
        assert self._origin is not None
        time -= self._origin
        return time if self._now < time < _MOST_SECONDS else self._now

    # ── the engine ────────────────────────────────────────────────────────────────────────────────────

    def _draw_step(self, record: StepRecord, start: float, end: float) -> None:
        file = self._file
        notes: dict[str, Any] = {
            "num_scheduled_tokens": sum(record.scheduled.values()),
            "requests": [f"{name}: {count}" for name, count in record.scheduled.items()],
            "num_free_blocks": record.num_free_blocks,
            "num_waiting": record.num_waiting,
        }
        notes |= {label: getattr(record, label) for label in _RARE if getattr(record, label)}
        if record.decisions:
            notes["decisions"] = [decision.sentence for decision in record.decisions]
        if record.error is not None:
            notes["error"] = record.error
        failed = " failed" if record.error is not None else ""
        file.begin(self._engine, start, f"step {record.step}{failed}", notes, once=True)
        file.end(self._engine, end)
        self._draw_counts(record, start, end)

    def _draw_counts(self, record: StepRecord, start: float, end: float) -> None:
        """From the step's beginning to the next one's; where nobody is left, nobody runs after its end."""
        in_use = self._num_blocks - record.num_free_blocks
        self._count("blocks", "blocks", start, in_use)
        self._count("tokens", "tokens", start, sum(record.scheduled.values()))
        self._count("padding", "tokens", start, record.num_padded)
        self._count("running", "requests", start, len(record.running))
        self._count("waiting", "requests", start, record.num_waiting)
        if set(record.running) <= set(record.returned):
            freed = sum(len(record.blocks_freed.get(name, ())) for name in record.returned)
            for key, value in (("blocks", in_use - freed), ("tokens", 0), ("padding", 0), ("running", 0)):
                self._count(key, "", end, value)

    def _count(self, key: str, unit: str, time: float, value: int) -> None:
        """What has not changed is not written, and what never is above 0 gets no track."""
        track, latest = self._counters.get(key, (0, 0))
        if value == latest:
            return
        if not track:
            track = self._file.counter(
                self._names[key], unit, self._run, _COUNTERS + list(self._names).index(key)
            )
            if time > 0:
                self._file.count(track, 0.0, 0)
        self._counters[key] = track, value
        self._file.count(track, time, value)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def _track(self, name: str) -> int:
        self._uses[name] += 1
        again = f" ({self._uses[name]})" if self._uses[name] > 1 else ""
        self.num_requests += 1
        return self._file.track(name + again, self._run, _REQUESTS + self.num_requests)

    def _come_and_go(self, record: StepRecord, start: float, why: Why) -> None:
        """One id may come, be aborted and come again between two steps; its turns alternate."""
        given_up = Counter(record.aborted)
        for name in given_up:
            if name in self._lives:
                given_up[name] -= 1
                self._close(name, start, "aborted", {"step": record.step, **why.notes(name, "abort")})
        for new in record.new_requests:
            self._open(new, start)
            if given_up[new.request_id] > 0:
                given_up[new.request_id] -= 1
                self._close(new.request_id, start, "aborted", {"step": record.step})
        for name, reason in record.refused.items():
            track = self._track(name)
            self._file.instant(track, start, "refused", {"step": record.step, "why": reason})

    def _open(self, new: NewRequest, start: float) -> None:
        assert self._origin is not None
        life = self._lives[new.request_id] = _Life(self._track(new.request_id), len(new.prompt_token_ids))
        arrival = min(max(0.0, new.arrival_time - self._origin), start)
        notes: dict[str, Any] = {"num_prompt_tokens": life.num_prompt}
        if new.prompt is not None:
            notes["prompt"] = new.prompt
        if "max_tokens" in new.sampling_params:
            notes["max_tokens"] = new.sampling_params["max_tokens"]
        self._set_state(life, "waiting", arrival)
        self._file.instant(life.track, arrival, "arrival", notes)

    def _set_state(self, life: _Life, state: str, time: float, notes: Notes | None = None) -> None:
        """The slice that is open from step to step ends, and another begins, if any."""
        if life.state:
            self._file.end(life.track, time)
        if state:
            self._file.begin(life.track, time, state, notes)
        life.state = state

    def _preempt(self, name: str, record: StepRecord, start: float, why: Why) -> None:
        life = self._lives.get(name)
        if life is None:
            return
        self._num_flows += 1
        life.flow = self._num_flows
        notes = {"step": record.step, **why.notes(name, "preempt")}
        self._set_state(life, "preempted", start, notes)
        self._file.instant(life.track, start, "preemption", notes, to_flow=life.flow)

    def _draw_requests(self, record: StepRecord, start: float, end: float, why: Why) -> None:
        """A slice for each that runs, and for each that is told why it does not."""
        file = self._file
        for name in record.scheduled:
            life = self._lives.get(name)
            if life is not None:
                self._set_state(life, "", start)
                kind, notes = work(record, name, life.num_prompt)
                notes |= why.notes(name, "admit", "prefill")
                file.begin(life.track, start, kind, notes, from_flow=life.flow)
                if name in record.sampled and not life.has_token:
                    life.has_token = True
                    file.instant(life.track, end, "first token", notes)
                file.end(life.track, end)
                life.flow = 0
        idle = [name for name in record.running if name not in record.scheduled]
        for name in dict.fromkeys([*idle, *why.waiting]):
            life = self._lives.get(name)
            if life is not None and life.state != "held" and name not in record.scheduled:
                kind = why.waiting.get(name, "step failed" if record.error is not None else "stalled")
                file.begin(life.track, start, kind, {"step": record.step, **why.notes(name, "wait")})
                file.end(life.track, end)

    def _end_requests(self, record: StepRecord, end: float, why: Why) -> None:
        file, step = self._file, record.step
        for name, error in record.errors.items():
            if name in self._lives:
                file.instant(self._lives[name].track, end, "error", {"step": step, "error": error})
        returned = set(record.returned)
        for name, reason in record.finished.items():
            life = self._lives.get(name)
            if life is None:
                continue
            notes = {"step": step, "finish_reason": str(reason), **why.notes(name, "finish")}
            if name in returned:
                self._close(name, end, "finish", notes | latencies(self._metrics.finished(name)))
            else:
                file.instant(life.track, end, "finish", notes)
                self._set_state(life, "held", end)
        for name in record.returned:
            if name in self._lives:
                notes = {"step": step, **why.notes(name, "return")}
                self._close(name, end, "returned", notes | latencies(self._metrics.finished(name)))

    def _close(self, name: str, time: float, how: str, notes: Notes | None = None) -> None:
        life = self._lives.pop(name)
        self._set_state(life, "", time)
        self._file.instant(life.track, time, how, notes)
