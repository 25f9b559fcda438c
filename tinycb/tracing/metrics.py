"""Latencies of requests and totals of a run, out of step records.

Latencies are defined as vLLM's serving benchmark defines them (`vllm bench serve`), and given in seconds and
in steps, which are exact and the same on every machine. `RequestMetrics` has the definitions; `waste.py`
has what a step wastes.

A collector holds one reference a token of the requests under way, lets a request go when its metrics are
taken, and sums up the others in `summary.py`. It knows no engine and opens no file: a live run and a trace
look alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple

from tinycb.config import EngineConfig
from tinycb.request import RequestMetrics
from tinycb.tracing.records import StepRecord
from tinycb.tracing.summary import Samples, Summary
from tinycb.tracing.waste import Waste, step_waste

__all__ = ["MetricsCollector", "Totals", "Waste", "step_waste"]


@dataclass(frozen=True, slots=True)
class Totals:
    """A run so far. Latencies are of requests that were answered without an error; tokens are of all.

    steps: records. forwards: steps that ran something. forward_tokens: padding included. num_prompt_tokens:
    of all that arrived. duration: seconds from the first step's beginning to the last one's end.
    tpot and tpot_steps leave out outputs of one token.
    """

    steps: int
    forwards: int
    failed_steps: int
    forward_tokens: int
    scheduled_tokens: int
    waste: Waste
    num_preemptions: int
    prefix_hit_tokens: int
    num_prompt_tokens: int
    num_output_tokens: int
    arrived: int
    returned: int
    refused: int
    aborted: int
    errors: int
    duration: float
    ttft: Summary
    tpot: Summary
    itl: Summary
    e2el: Summary
    ttft_steps: Summary
    tpot_steps: Summary
    itl_steps: Summary
    e2el_steps: Summary

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second; 0 for a run without duration."""
        return self.num_output_tokens / self.duration if self.duration > 0 else 0.0


class _Moment(NamedTuple):
    """The end of a step; every token sampled in it shares one."""

    step: int
    time: float


@dataclass(slots=True)
class _Request:
    """What a request under way needs beside the moments of its tokens."""

    arrival: _Moment
    prompt_tokens: int
    preemptions: int = 0
    cached: int = 0
    recomputed: int = 0


_LATENCIES = ("ttft", "tpot", "itl", "e2el", "ttft_steps", "tpot_steps", "itl_steps", "e2el_steps")
_NOTHING = RequestMetrics(None, None, None, (), None, None, None, ())


class MetricsCollector:
    """Takes in every record of a run, in order; gives out each request's metrics, and the run's totals.

    A step costs one append a token, and nothing is made for each request. `finished` takes a request's
    metrics out; who observes a run and leaves them keeps them all.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.waste = Waste()  # of the latest step
        self._requests: dict[str, _Request] = {}
        self._moments: defaultdict[str, list[_Moment]] = defaultdict(list)
        self._partial: dict[str, int] = {}  # id → tokens computed, in the midst of a prompt
        self._again: dict[str, int] = {}  # id → tokens computed before a preemption, not yet reached again
        self._done: dict[str, RequestMetrics] = {}
        self._failed: set[str] = set()
        self._samples = {name: Samples() for name in _LATENCIES}
        self._counts: Counter[str] = Counter()
        self._wasted = Waste()
        self._began: float | None = None
        self._ended = 0.0

    def observe(self, record: StepRecord) -> None:
        """Take in the next step, and fill in its `num_recomputed`."""
        if record.aborted or record.new_requests:
            self._come_and_go(record)
        for name in record.preempted:
            self._preempt(name)
        for name, hit_tokens in record.prefix_hits.items():
            if name in self._requests:
                self._requests[name].cached = hit_tokens
        record.num_recomputed = self._count_recomputed(record) if self._again else 0

        moments, moment = self._moments, _Moment(record.step, record.time_end)
        for name in record.sampled:
            moments[name].append(moment)
        if self._partial:
            for name in self._partial.keys() & record.sampled.keys():
                del self._partial[name]
        if len(record.scheduled) > len(record.sampled):
            for name in record.scheduled.keys() - record.sampled.keys():
                self._partial[name] = record.num_computed[name] + record.scheduled[name]

        self._failed.update(record.errors)
        for name in record.returned:
            self._return(name, moment)
        self._count(record)

    def finished(self, request_id: str) -> RequestMetrics:
        """The metrics of a request, which are then forgotten.

        Of one that was not returned, because it was aborted, what there is: `e2el` and `tpot` are None, and
        all is None or 0 if it never ran.
        """
        done = self._done.pop(request_id, None)
        if done is not None:
            return done
        request = self._requests.get(request_id)
        if request is None:
            return _NOTHING
        return _metrics(request, self._moments.get(request_id, []), None)

    @property
    def totals(self) -> Totals:
        """The run so far."""
        values: dict[str, Any] = {name: self._counts[name] for name in _COUNTS}
        values |= {name: samples.summary() for name, samples in self._samples.items()}
        return Totals(
            waste=self._wasted,
            duration=self._ended - self._began if self._began is not None else 0.0,
            **values,
        )

    def _come_and_go(self, record: StepRecord) -> None:
        """One id may come, be aborted and come again between two steps; its turns alternate."""
        given_up = Counter(record.aborted)
        for name in given_up:
            if name in self._requests:
                given_up[name] -= 1
                self._forget(name)
        for new in record.new_requests:
            if given_up[new.request_id] > 0:
                given_up[new.request_id] -= 1
            else:
                arrival = _Moment(record.step, new.arrival_time)
                self._requests[new.request_id] = _Request(arrival, len(new.prompt_token_ids))

    def _preempt(self, name: str) -> None:
        request = self._requests.get(name)
        if request is None:
            return
        request.preemptions += 1
        outputs = len(self._moments.get(name, ()))
        # After a token was sampled, all but that token is computed.
        computed = self._partial.pop(name, request.prompt_tokens + outputs - 1 if outputs else 0)
        self._again[name] = max(computed, self._again.get(name, 0))

    def _count_recomputed(self, record: StepRecord) -> int:
        total = 0
        for name in self._again.keys() & record.scheduled.keys():
            start, before = record.num_computed[name], self._again[name]
            end = start + record.scheduled[name]
            count = max(0, min(end, before) - start)
            total += count
            if name in self._requests:
                self._requests[name].recomputed += count
            if end >= before:
                del self._again[name]
        return total

    def _return(self, name: str, moment: _Moment) -> None:
        request = self._requests.get(name)
        if request is None:
            return
        metrics = self._done[name] = _metrics(request, self._moments.get(name, []), moment)
        failed = name in self._failed
        self._forget(name)
        if failed:
            return
        for latency in _LATENCIES:
            value = getattr(metrics, latency)
            if value is not None:
                self._samples[latency].add(value if isinstance(value, tuple) else (value,))

    def _forget(self, name: str) -> None:
        del self._requests[name]
        for kept in (self._moments, self._partial, self._again):
            kept.pop(name, None)
        self._failed.discard(name)

    def _count(self, record: StepRecord) -> None:
        counts = self._counts
        if self._began is None:
            self._began = record.time_start
        self._ended = record.time_end
        counts["steps"] += 1
        counts["failed_steps"] += record.error is not None
        counts["num_preemptions"] += len(record.preempted)
        counts["arrived"] += len(record.arrived)
        counts["returned"] += len(record.returned)
        counts["refused"] += len(record.refused)
        counts["aborted"] += len(record.aborted)
        counts["errors"] += len(record.errors)
        counts["num_output_tokens"] += len(record.sampled)
        counts["num_prompt_tokens"] += sum(len(new.prompt_token_ids) for new in record.new_requests)
        counts["prefix_hit_tokens"] += sum(record.prefix_hits.values())
        if not record.scheduled:
            self.waste = Waste()
        else:
            scheduled_tokens = sum(record.scheduled.values())
            counts["forwards"] += 1
            counts["scheduled_tokens"] += scheduled_tokens
            counts["forward_tokens"] += scheduled_tokens + record.num_padded
            self.waste = step_waste(record, self.config)
            self._wasted += self.waste


_COUNTS = frozenset(f.name for f in fields(Totals) if f.type == "int")


def _metrics(request: _Request, tokens: list[_Moment], returned: _Moment | None) -> RequestMetrics:
    arrival = request.arrival
    ttft = e2el = tpot = tpot_steps = ttft_steps = e2el_steps = None
    if tokens:
        ttft, ttft_steps = tokens[0].time - arrival.time, tokens[0].step - arrival.step + 1
    if returned is not None:
        e2el, e2el_steps = returned.time - arrival.time, returned.step - arrival.step + 1
        if len(tokens) > 1:
            tpot = (returned.time - tokens[0].time) / (len(tokens) - 1)
            tpot_steps = (returned.step - tokens[0].step) / (len(tokens) - 1)
    pairs = list(pairwise(tokens))
    return RequestMetrics(
        ttft=ttft,
        tpot=tpot,
        e2el=e2el,
        itl=tuple(after.time - before.time for before, after in pairs),
        ttft_steps=ttft_steps,
        tpot_steps=tpot_steps,
        e2el_steps=e2el_steps,
        itl_steps=tuple(after.step - before.step for before, after in pairs),
        num_preemptions=request.preemptions,
        num_cached_tokens=request.cached,
        num_recomputed_tokens=request.recomputed,
    )
