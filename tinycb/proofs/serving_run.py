"""Runs one example and watches it: arrivals, aborts, steps, failed forwards, and a law asked after each.

No model is needed to know whether a request reads its own past. `SymbolicExecutor` keeps, for each slot of
the cache, the tokens up to the one whose key and value would lie there, and looks at every slot a row reads.
What lies in memory that nobody owns is forgotten before each forward, for a real cache may lose it any time.

Says nothing about what is right (`serving.py`) or which examples to run (`workloads.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any
from unittest import mock

from tinycb.engine import Engine
from tinycb.executors import ExecutorOutput, ScheduledStep
from tinycb.proofs.theorem import Counterexample
from tinycb.proofs.workloads import Arrival, Serving
from tinycb.request import Request
from tinycb.scheduling import block_pool
from tinycb.tracing.records import StepRecord

__all__ = ["Law", "PlannedFailure", "Run", "SymbolicExecutor", "live_slots", "next_token"]


class PlannedFailure(RuntimeError):
    """The forward that an example wants to fail."""


class Law:
    """What must hold, asked at these moments. Each method raises Counterexample; none needs to be there."""

    def added(self, run: Run, request: Request, arrival: Arrival) -> None:
        """The engine took the request."""

    def executing(self, run: Run, step: ScheduledStep) -> None:
        """The choice is made, and the forward is about to run."""

    def event(self, run: Run) -> None:
        """Something happened: an arrival, an abort, a step or a failed one."""

    def stepped(self, run: Run, record: StepRecord, was_unfinished: bool) -> None:
        """A step was run to its end. was_unfinished: there was something to do before it."""

    def failed(self, run: Run) -> None:
        """A forward failed, and the step was undone."""

    def ended(self, run: Run) -> None:
        """Every request has its answer."""


class Run:
    """One engine, its requests, and the law that watches them. names: of the requests, by arrival."""

    def __init__(self, engine: Engine, law: Law, names: Callable[[int], str] = "q{}".format) -> None:
        self.engine, self.law, self.name_of = engine, law, names
        self.requests: dict[str, Request] = {}  # those that the engine took, in order of arrival
        self.arrivals: dict[str, Arrival] = {}
        self.refused: dict[str, str] = {}
        self.records: list[StepRecord] = []
        self.failing = False  # whether the next forward is to fail
        self.steps = 0  # tried, those that failed included
        if isinstance(engine.executor, Watched):
            engine.executor.run = self

    @property
    def unfinished(self) -> list[Request]:
        return [request for request in self.requests.values() if not request.is_finished]

    @property
    def block_tables(self) -> dict[str, list[int]]:
        """The tables of all requests ever taken: one that has gone must hold nothing."""
        return {name: request.block_table for name, request in self.requests.items()}

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def add(self, request: Request, arrival: Arrival | None = None) -> None:
        if arrival is None:
            arrival = Arrival(self.steps, request.num_tokens, request.sampling_params.max_tokens)
        try:
            self.engine.add_request(request)
        except ValueError as error:
            self.refused[request.request_id] = str(error)
        else:
            self.requests[request.request_id] = request
            self.arrivals[request.request_id] = arrival
            self.law.added(self, request, arrival)
        self.law.event(self)

    def abort(self, name: str) -> None:
        self.engine.abort(name)
        self.law.event(self)

    def step(self, failing: bool = False) -> None:
        was_unfinished, self.failing = self.engine.has_unfinished_requests(), failing
        self.steps += 1
        try:
            record = self.engine.step()
        except PlannedFailure:
            self.law.failed(self)
            self.law.event(self)
            return
        self.records.append(record)
        self.law.stepped(self, record, was_unfinished)
        self.law.event(self)

    def serve(self, example: Serving) -> None:
        """Run the example to its end. Raises Counterexample if the law is broken, or if there is no end."""
        workload = example.workload
        waiting = list(enumerate(workload.arrivals))
        aborts: dict[int, list[str]] = {}
        most = sum(arrival.work + 1 for arrival in workload.arrivals) + workload.arrivals[-1].step + 1
        most += len(workload.failures)
        while waiting or self.engine.has_unfinished_requests():
            now = self.steps
            while waiting and waiting[0][1].step <= now:
                index, arrival = waiting.pop(0)
                name = self.name_of(index)
                self.add(workload.request(index, name), arrival)
                if arrival.abort is not None:
                    aborts.setdefault(now + arrival.abort, []).append(name)
            for name in aborts.pop(now, ()):
                self.abort(name)
            self.step(failing=now in workload.failures)
            if self.steps > most + 1:
                names = ", ".join(request.request_id for request in self.unfinished)
                raise Counterexample(f"{names}: no end after {self.steps} steps, where {most} are enough")
        self.law.ended(self)


def serve(
    make: Callable[[], Engine], example: Serving, law: Law, names: Callable[[int], str] = "q{}".format
) -> Run:
    """Make an engine, run the example on it, and close its trace. A counterexample gets a picture."""
    collide = example.workload.collide
    equal: dict[str, Any] = {"prefix_hash": lambda parent_hash, tokens: 7} if collide else {}
    with mock.patch.multiple(block_pool, **equal) if equal else mock.MagicMock():
        run = Run(make(), law, names)
        try:
            run.serve(example)
        except Counterexample as error:
            raise Counterexample(error.words, partial(picture, run)) from None
        except Exception as error:
            text = " ".join(str(error).split())
            words = f"step {run.steps - 1} raised {type(error).__name__}: {text[:300]}"
            raise Counterexample(words, partial(picture, run)) from error
        finally:
            run.engine.close()
    return run


def picture(run: Run) -> str:
    """Steps from left to right: how many tokens a request runs, `.` waits, `P` is preempted, `x` aborted."""
    rows = []
    for name in run.requests:
        cells = []
        for record in run.records:
            cell = str(record.scheduled[name]) if name in record.scheduled else ""
            cell = cell or ("P" if name in record.preempted else "x" if name in record.aborted else "")
            cells.append((cell or ".").rjust(3))
        rows.append(name.ljust(4) + "".join(cells))
    steps = "".join(str(record.step).rjust(3) for record in run.records)
    return "\n".join(["step" + steps, *rows])


# ── executors ─────────────────────────────────────────────────────────────────────────────────────────────


def live_slots(run: Run) -> set[int]:
    """Slots whose contents somebody may still read: computed positions of requests, and cached prefixes."""
    pool, live = run.engine.pool, set()
    size = pool.block_size
    for request in run.requests.values():
        for position in range(min(request.num_computed_tokens, len(request.block_table) * size)):
            live.add(request.block_table[position // size] * size + position % size)
    for block in pool.blocks:
        if block.prefix is not None:
            live |= set(range(block.block_id * size, (block.block_id + 1) * size))
    return live


class Watched:
    """An executor that tells the run's law about each step before it runs, and fails where it is told to."""

    run: Run

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        self.run.law.executing(self.run, step)
        self.forget(live_slots(self.run))
        if self.run.failing:
            self.spoil(step)
            raise PlannedFailure
        return self.forward(step)

    def forget(self, live: set[int]) -> None:
        """Overwrite every slot that is not among these."""
        raise NotImplementedError

    def spoil(self, step: ScheduledStep) -> None:
        """Overwrite what the step would have written, as a forward that ends half-way may."""
        raise NotImplementedError

    def forward(self, step: ScheduledStep) -> ExecutorOutput:
        raise NotImplementedError


def next_token(tokens: Sequence[int]) -> int:
    """What the symbolic model says after these tokens: it depends on every one of them."""
    return zlib.crc32(bytes(tokens)) % 97


class SymbolicExecutor(Watched):
    """Runs no model: a slot holds the number of a past, and a read of a wrong one is noted in `misread`."""

    name = "symbolic"
    vocab_size: int | None = None
    max_model_len: int | None = None
    num_blocks: int | None = None
    eos_token_ids: Collection[int] = ()

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.content: dict[int, int] = {}  # slot → number of the past that lies there
        self.pasts: dict[tuple[int, int], int] = {}  # (past, token) → the past that is longer by the token
        self.misread: list[str] = []

    def check_request(self, request: Request) -> None:
        """It could serve any."""

    def past(self, tokens: Sequence[int]) -> list[int]:
        """For each token the number of the past that ends with it."""
        numbers, last = [], 0
        for token in tokens:
            last = self.pasts.setdefault((last, token), len(self.pasts) + 1)
            numbers.append(last)
        return numbers

    def slots(self, table: Sequence[int], positions: Iterable[int]) -> list[int]:
        """Where positions lie; -1 where the table does not reach."""
        size = self.block_size
        return [table[p // size] * size + p % size if p // size < len(table) else -1 for p in positions]

    def forget(self, live: set[int]) -> None:
        self.content = {slot: past for slot, past in self.content.items() if slot in live}

    def spoil(self, step: ScheduledStep) -> None:
        for row in step.rows:
            for slot in self.slots(row.block_table, range(row.start, row.start + row.num_tokens)):
                self.content.pop(slot, None)

    def forward(self, step: ScheduledStep) -> ExecutorOutput:
        pasts = [self.past(row.token_ids[: row.start + row.num_tokens]) for row in step.rows]
        for row, past in zip(step.rows, pasts, strict=True):
            positions = range(row.start, row.start + row.num_tokens)
            for slot, position in zip(self.slots(row.block_table, positions), positions, strict=True):
                self.content[slot] = past[position]
        output = ExecutorOutput({})
        for row, past in zip(step.rows, pasts, strict=True):
            end = row.start + row.num_tokens if row.num_tokens else 0
            slots = self.slots(row.block_table, range(end))
            wrong = [p for p in range(end) if slots[p] < 0 or self.content.get(slots[p]) != past[p]]
            if wrong:
                self.misread.append(self.describe(row.request_id, wrong[0], slots[wrong[0]]))
            if row.samples and row.num_tokens:
                # A wrong past gives another answer, as it would with a real model.
                output.token_ids[row.request_id] = next_token(row.token_ids[:end]) + 97 * bool(wrong)
        return output

    def describe(self, name: str, position: int, slot: int) -> str:
        if slot < 0:
            return f"{name} reads position {position}, for which its table has no block"
        past = self.content.get(slot)
        what = "nothing that was computed" if past is None else "the past of other tokens"
        return f"{name} reads position {position} in slot {slot}, which holds {what}"
