"""From what vLLM did in a step to a step record. Runs on a thread of its own, behind the engine.

A block id in the trace is vLLM's minus one: its block 0 is a placeholder that no request ever gets.

With asynchronous scheduling, or with pipeline stages, a step is chosen before the one before it has its
tokens. A request that turns out to be done may then run once more, for nothing; its answer and its blocks are
given back in that later step's record, so that each record fits what came before it. A step for which nobody
could be chosen, because all are under way in earlier ones, is no step.

Imports neither vLLM nor torch. Next: `explaining.py` for the reasons.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from tinycb.adapters.events import Abort, Arrival, Event, Notes, Preemption, Rules, Step
from tinycb.adapters.explaining import Numbers, ending_of, why_preempted, why_the_head_waits
from tinycb.adapters.holdings import Holdings, Live
from tinycb.adapters.vllm_params import sampling_params_of
from tinycb.config import EngineConfig
from tinycb.packing import Row
from tinycb.scheduling.decisions import Decision, Reason
from tinycb.tracing.metrics import MetricsCollector
from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["Sink", "Transcript"]


class Sink(Protocol):
    """Where records go."""

    def write(self, record: StepRecord) -> None: ...

    def close(self) -> None: ...


class Transcript:
    """Takes in steps in order and writes a record each. A step with nothing to do is left out."""

    def __init__(self, sink: Sink, rules: Rules, num_blocks: int) -> None:
        self.sink = sink
        self.rules = rules
        self.step = 0
        self._seen = 0  # steps taken in, those left out included
        self._live: dict[str, Live] = {}
        self._ended: dict[str, int] = {}  # id → the step, as counted by `_seen`, in which it leaves
        self._latest: deque[tuple[float, int, Collection[str]]] = deque(
            maxlen=32
        )  # when its tokens came, who
        self._holdings = Holdings(num_blocks, rules.block_size, rules.prefix_caching)
        self._metrics = MetricsCollector(EngineConfig())  # counts what is computed again
        self._clock_offset = time.time() - time.monotonic()

    def take(self, step: Step) -> None:
        """Write the record of a step whose result is there."""
        (output, running, num_free, notes, start, chosen), result, update_start, end, spent, later = step
        notes = notes or Notes()
        self._seen += 1
        in_flight = {name: step for came, step, names in self._latest if came > start for name in names}
        is_empty = not (output.num_scheduled_tokens or notes.events or notes.preemptions)
        if is_empty and (in_flight or not (running or notes.head)):
            return  # without anybody, vLLM tells its workers who is gone
        record = self._begin(start, notes.events)
        record.running = [request.request_id for request in running]
        record.num_waiting, record.num_free_blocks = notes.num_waiting, num_free
        record.scheduled = dict(output.num_scheduled_tokens)
        self._choose(record, output, notes, in_flight)
        self._latest.append((update_start, record.step, tuple(record.scheduled)))
        record.time_end = end
        rows = [
            Row(name, (), record.num_computed[name], num_tokens, self._live[name].table)
            for name, num_tokens in record.scheduled.items()
        ]
        record.rows_source = lambda: rows
        self._end_step(record, result, later)
        record.extra["vllm"] = {
            "schedule": round(chosen - start, 9),
            "update": round(end - update_start, 9),
            "recorder": round(spent, 9),
        }
        self._write(record)

    def close(self, events: Iterable[Event] = ()) -> None:
        """What happened since the last step gets a record of its own, and the trace ends."""
        events = list(events)
        if events:
            record = self._begin(time.monotonic(), events)
            record.time_end = record.time_start
            record.num_waiting = len(self._live)
            record.num_free_blocks = self._holdings.num_free
            self._write(record)
        self.sink.close()

    def _begin(self, start: float, events: Iterable[Event]) -> StepRecord:
        record = StepRecord(step=self.step, time_start=start, block_size=self.rules.block_size)
        for event in events:
            if isinstance(event, Arrival):
                self._arrive(record, event.request)
            else:
                self._abort(record, event)
        return record

    def _write(self, record: StepRecord) -> None:
        record.blocks_evicted, self._holdings.evicted = self._holdings.evicted, []
        self._metrics.observe(record)
        for name in (*record.returned, *record.aborted):
            self._metrics.finished(name)
        self.sink.write(record)
        self.step += 1

    # ── between steps ─────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, record: StepRecord, request: Any) -> None:
        name, prompt = request.request_id, list(request.prompt_token_ids)
        if name in self._live:
            return  # a session that goes on with further input: its first prompt stands for it
        self._live[name] = Live(len(prompt), request.max_tokens, len(prompt))
        record.arrived.append(name)
        params = sampling_params_of(request.sampling_params, request.max_tokens)
        arrival = request.arrival_time - self._clock_offset
        seed = request.sampling_params.seed
        record.new_requests.append(NewRequest(name, prompt, params, arrival, seed))

    def _abort(self, record: StepRecord, event: Abort) -> None:
        name = event.request_id
        live = self._live.pop(name, None)
        if live is None:
            return
        record.aborted.append(name)
        numbers = {"output": event.num_output, "computed": event.num_computed}
        reason = Reason.ABORTED if event.status == "FINISHED_ABORTED" else Reason.NOT_STATED
        record.decisions.append(Decision(name, "abort", reason, numbers))
        freed = self._holdings.release(live)
        if freed:
            record.blocks_freed[name] = freed

    def _release(self, record: StepRecord, name: str, live: Live) -> None:
        record.blocks_freed[name] = record.blocks_freed.get(name, []) + self._holdings.release(live)

    # ── the choice ────────────────────────────────────────────────────────────────────────────────────

    def _choose(self, record: StepRecord, output: Any, notes: Notes, in_flight: Mapping[str, int]) -> None:
        """In vLLM's order: running requests, each with those that made way for it; then admissions."""
        new_blocks, computed = _blocks_of(output)
        record.num_computed = {name: computed[name] for name in record.scheduled}
        preemptions = list(notes.preemptions)
        budget = self.rules.max_num_batched_tokens
        for name, num_tokens in record.scheduled.items():
            if name in notes.tables:
                continue
            while any(preemption.winner == name for preemption in preemptions):
                self._preempt(record, preemptions.pop(0))
            live = self._live[name]
            self._allocate(record, name, live, new_blocks.get(name, ()))
            gap = live.num_tokens - computed[name]
            if gap > 1 or num_tokens > 1:
                numbers = {"tokens": num_tokens, "remaining": gap - num_tokens, "budget": budget}
                record.decisions.append(Decision(name, "prefill", Reason.CHUNK, numbers))
            budget -= num_tokens
            self._cache(record, name, live)
        for preemption in preemptions:
            self._preempt(record, preemption)
        for name in record.running:
            if name not in record.scheduled:
                self._wait(record, name, budget == 0, in_flight.get(name))
        for name in record.scheduled:
            if name in notes.tables:
                self._admit(record, name, [block_id - 1 for block_id in notes.tables[name]])
                budget -= record.scheduled[name]
        if notes.head is not None:
            live_head = self._live.get(notes.head.request_id)
            record.decisions.append(
                why_the_head_waits(notes, self.rules, budget, len(record.running), live_head, self._holdings)
            )

    def _preempt(self, record: StepRecord, preemption: Preemption) -> None:
        name = preemption.request_id
        live = self._live[name]
        record.decisions.append(why_preempted(preemption, self.rules, len(live.table)))
        record.preempted.append(name)
        live.is_preempted = True
        self._release(record, name, live)

    def _allocate(self, record: StepRecord, name: str, live: Live, blocks: Iterable[int]) -> None:
        taken = list(blocks)
        if taken:
            self._holdings.take(live, taken)
            record.blocks_allocated[name] = taken

    def _admit(self, record: StepRecord, name: str, table: list[int]) -> None:
        live, free = self._live[name], self._holdings.num_free
        hit, num_tokens = record.num_computed[name], record.scheduled[name]
        num_hits = hit // self.rules.block_size
        idle = self._holdings.count_idle(table[:num_hits])
        self._holdings.share(live, table[:num_hits])
        self._allocate(record, name, live, table[num_hits:])
        record.blocks_allocated.setdefault(name, [])
        record.admitted.append(name)
        if hit:
            record.prefix_hits[name] = hit
        reason = Reason.READMITTED if live.is_preempted else Reason.ADMITTED
        live.is_preempted = False
        numbers: Numbers = {"tokens": num_tokens, "todo": live.num_tokens - hit, "hit": hit}
        numbers |= {"needs": len(table) - num_hits + idle, "free": free}
        record.decisions.append(Decision(name, "admit", reason, numbers))
        self._cache(record, name, live)

    def _cache(self, record: StepRecord, name: str, live: Live) -> None:
        start = record.num_computed[name]
        record.blocks_cached += self._holdings.cache_full_blocks(live, start, start + record.scheduled[name])

    def _wait(self, record: StepRecord, name: str, is_spent: bool, in_flight: int | None) -> None:
        """in_flight: the earlier step that it is still under way in."""
        reason, numbers = Reason.NOT_STATED, Numbers()
        if in_flight is not None:
            reason, numbers = Reason.IN_FLIGHT, {"step": in_flight}
        elif is_spent:
            reason, numbers = Reason.BUDGET_SPENT, {"limit": self.rules.max_num_batched_tokens}
        record.decisions.append(Decision(name, "wait", reason, numbers))

    # ── what came of it ───────────────────────────────────────────────────────────────────────────────

    def _end_step(
        self, record: StepRecord, result: Mapping[int, Any], later: Collection[Mapping[str, int]]
    ) -> None:
        answers = {answer.request_id: answer for sent in result.values() for answer in sent.outputs}
        leaving = [name for name, seen in self._ended.items() if seen == self._seen]
        for name in record.scheduled:
            answer = answers.pop(name, None)
            if answer is not None and name in self._live and self._answer(record, name, answer):
                behind = [n for n, tokens in enumerate(later, start=1) if name in tokens]
                if behind:
                    self._ended[name] = self._seen + behind[-1]
                else:
                    leaving.append(name)
        for name, answer in answers.items():  # ended without having run in this step
            if name in self._live and name not in self._ended and self._answer(record, name, answer):
                leaving.append(name)
        for name in leaving:
            self._ended.pop(name, None)
            record.returned.append(name)
            self._release(record, name, self._live.pop(name))

    def _answer(self, record: StepRecord, name: str, answer: Any) -> bool:
        """Put down the token; True if it was the last."""
        live = self._live[name]
        if answer.new_token_ids:
            live.num_tokens += len(answer.new_token_ids)
            record.sampled[name] = int(answer.new_token_ids[-1])
        if answer.finish_reason is None:
            return False
        record.finished[name], reason, numbers = ending_of(live, answer, self.rules.max_model_len)
        if record.finished[name] == "error":
            record.errors[name] = "vLLM ended it with an error"
        record.decisions.append(Decision(name, "finish", reason, numbers))
        return True


def _blocks_of(output: Any) -> tuple[dict[str, list[int]], dict[str, int]]:
    """New blocks of those that ran already, and tokens that everyone had computed before."""
    computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    taken = zip(cached.req_ids, cached.new_block_ids, strict=True)
    return {name: [n - 1 for n in blocks[0]] for name, blocks in taken if blocks is not None}, computed
