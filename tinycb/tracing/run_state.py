"""What a run adds up to, step by step: who lives, with which tokens and blocks, and who waits.

`RunState.apply` takes one record. The writer keeps such a state to write keyframes from; the reader starts at
a keyframe and applies the records after it. Both use this one class, so they cannot drift apart.

A keyframe is the state before a step, small enough to be written every few hundred steps:

    waiting     requests that never ran, as ranges of arrival numbers: [[4000, 24000]] is 20,000 of them
    requests    the others, each with its origin (its prompt is there), its counts and its block table, and
                its output since the keyframe before; older output is in older keyframes
    running, preempted, cached     ids in batch order; ids, head of the queue first; blocks, as ranges

so its size follows the requests that run, and neither the queue, nor the prompts, nor long outputs.

Opens no file. Next: `writer.py`, `reader.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tinycb.request import RequestStatus
from tinycb.tracing.codec import Moves, Origin
from tinycb.tracing.records import StepRecord

__all__ = ["LiveRequest", "Ranges", "RunState"]


class LiveRequest:
    """A request that has run and has not been given back.

    outputs, texts: from `num_older` on; what came before is in the keyframes up to that of step `keyframe`.
    They only ever grow, and a table that shrinks is replaced, so a view of today's length stays true.
    """

    __slots__ = (
        "block_table",
        "keyframe",
        "num_computed_tokens",
        "num_older",
        "origin",
        "outputs",
        "status",
        "texts",
    )

    def __init__(self, origin: Origin, block_table: list[int], num_older: int = 0) -> None:
        self.origin = origin
        self.block_table = block_table
        self.status = RequestStatus.RUNNING
        self.num_computed_tokens = 0
        self.num_older = num_older
        self.keyframe = 0
        self.outputs: list[int] = []
        self.texts: list[str] = []

    @property
    def num_tokens(self) -> int:
        return self.origin.num_prompt_tokens + self.num_older + len(self.outputs)


class Ranges:
    """A set of integers, growing at the end and shrinking anywhere, as ranges start … end - 1."""

    def __init__(self, ranges: Collection[list[int]] = ()) -> None:
        self.ranges = [list(r) for r in ranges]

    @classmethod
    def of(cls, values: Collection[int]) -> Ranges:
        result = cls()
        for value in sorted(values):
            result.append(value, value + 1)
        return result

    def append(self, start: int, end: int) -> None:
        """Add start … end - 1, which come after all that is in the set."""
        if self.ranges and self.ranges[-1][1] == start:
            self.ranges[-1][1] = end
        elif start < end:
            self.ranges.append([start, end])

    def remove(self, value: int) -> None:
        """Take a value out; nothing happens if it is not there."""
        index = bisect_right(self.ranges, value, key=lambda r: r[0]) - 1
        if index < 0 or value >= self.ranges[index][1]:
            return
        start, end = self.ranges[index]
        self.ranges[index : index + 1] = [r for r in ([start, value], [value + 1, end]) if r[0] < r[1]]

    def __len__(self) -> int:
        return sum(end - start for start, end in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for start, end in self.ranges:
            yield from range(start, end)


class RunState:
    """The state after the records applied so far.

    queue: arrival numbers of those that never ran. live: the others, until their answer is given back.
    left: those that the latest record gave back or gave up; its rows still show them.
    """

    def __init__(self) -> None:
        self.num_arrivals = 0
        self.queue = Ranges()
        self.live: dict[str, LiveRequest] = {}
        self.left: dict[str, LiveRequest] = {}
        self.preempted: list[str] = []
        self.running: list[str] = []
        self.cached: set[int] = set()

    def apply(self, record: StepRecord, moves: Moves) -> None:
        """Take in one step. What a failed step undid is not in its record, so there is nothing to undo."""
        self.left = {}
        self.queue.append(self.num_arrivals, self.num_arrivals + len(record.new_requests))
        self.num_arrivals += len(record.new_requests)
        for number in moves.dropped:
            self.queue.remove(number)
        for name in record.aborted:
            self._drop(name)
        for name in record.preempted:
            request = self.live[name]
            request.status = RequestStatus.PREEMPTED
            request.num_computed_tokens = 0
            request.block_table = []
            self.preempted.insert(0, name)
        for name in record.admitted:
            self._admit(name, record, moves)
        for name, block_ids in record.blocks_allocated.items():
            if name not in record.admitted:
                self.live[name].block_table += block_ids
        self._advance(record)
        self.cached.difference_update(record.blocks_evicted)
        self.cached.update(record.blocks_cached)
        for name in record.finished:
            self.live[name].status = RequestStatus.FINISHED
        for name in record.returned:
            self._drop(name)
        for name in record.blocks_freed:  # held by a static batch, and freed before it is given back
            held = self.live.get(name)
            ended_before = name not in record.finished  # else it was an earlier request of that id, aborted
            if held is not None and held.status is RequestStatus.FINISHED and ended_before:
                held.block_table = []
        self.running = [name for name in record.running if name in self.live]

    def _admit(self, name: str, record: StepRecord, moves: Moves) -> None:
        table = moves.tables.get(name)
        if table is None:
            table = record.blocks_allocated.get(name, [])
        if name in moves.origins:
            request = self.live[name] = LiveRequest(moves.origins[name], list(table))
            self.queue.remove(request.origin.number)
        else:
            request = self.live[name]
            request.status = RequestStatus.RUNNING
            request.block_table = list(table)
            self.preempted.remove(name)

    def _advance(self, record: StepRecord) -> None:
        live, computed = self.live, record.num_computed
        for name, num_tokens in record.scheduled.items():
            live[name].num_computed_tokens = computed[name] + num_tokens
        texts = record.sampled_texts
        for name, token in record.sampled.items():
            request = live[name]
            request.outputs.append(token)
            request.texts.append(texts.get(name, ""))

    def _drop(self, name: str) -> None:
        request = self.live.pop(name, None)
        if request is None:
            return
        self.left[name] = request
        if request.status is RequestStatus.PREEMPTED:
            self.preempted.remove(name)

    # ── keyframes ─────────────────────────────────────────────────────────────────────────────────────

    def take_keyframe(self, step: int) -> dict[str, Any]:
        """The state before `step`, as JSON can hold it. From here on, `outputs` begin anew."""
        requests: dict[str, dict[str, Any]] = {}
        for name, request in self.live.items():
            entry: dict[str, Any] = {
                "origin": request.origin,
                "status": request.status.value,
                "num_computed_tokens": request.num_computed_tokens,
                "num_outputs": request.num_older + len(request.outputs),
                "block_table": request.block_table,
                "outputs": request.outputs,
            }
            if any(request.texts):
                entry["texts"] = request.texts
            requests[name] = entry
            request.num_older += len(request.outputs)
            request.outputs, request.texts = [], []
        return {
            "keyframe": step,
            "arrivals": self.num_arrivals,
            "waiting": self.queue.ranges,
            "preempted": self.preempted,
            "running": self.running,
            "cached": Ranges.of(self.cached).ranges,
            "requests": requests,
        }

    @classmethod
    def from_keyframe(cls, frame: Mapping[str, Any]) -> RunState:
        """Raises KeyError or TypeError if it is none."""
        state = cls()
        state.num_arrivals = frame["arrivals"]
        state.queue = Ranges(frame["waiting"])
        state.preempted = list(frame["preempted"])
        state.running = list(frame["running"])
        state.cached = set(Ranges(frame["cached"]))
        for name, entry in frame["requests"].items():
            outputs = entry["outputs"]
            request = LiveRequest(
                Origin(*entry["origin"]), entry["block_table"], entry["num_outputs"] - len(outputs)
            )
            request.status = RequestStatus(entry["status"])
            request.num_computed_tokens = entry["num_computed_tokens"]
            request.outputs = outputs
            request.texts = entry.get("texts") or [""] * len(outputs)
            request.keyframe = frame["keyframe"]
            state.live[name] = request
        return state
