"""What must hold of a scheduler, law by law. Each watches a run (`serving_run.py`) and raises Counterexample.

A law's first line is the statement of its theorem. Which ones hold of every scheduler and which of chunked
prefill only is said in `serving.py`.
"""

from __future__ import annotations

from typing import Any

from tinycb.executors import ScheduledStep
from tinycb.proofs.serving_run import Law, Run, SymbolicExecutor, next_token
from tinycb.proofs.theorem import Counterexample
from tinycb.proofs.workloads import Arrival
from tinycb.request import Request
from tinycb.scheduling import InvariantError, check_pool
from tinycb.tracing.records import StepRecord

__all__ = [
    "FailedForwardIsUndone",
    "FirstComeFirstServed",
    "NoNeedlessBlock",
    "NobodyStarves",
    "NotMoreThanMaxNumSeqs",
    "OffersOnlyWhatWasComputed",
    "PoolIsWhole",
    "ReadsItsOwnPast",
    "SameTokensAsAlone",
    "SlotsArePrivate",
    "SomebodyAdvances",
    "WithinItsBudget",
    "expected_length",
]


class PoolIsWhole(Law):
    """Every block is free or owned, and its reference count is the number of block tables that hold it."""

    def event(self, run: Run) -> None:
        try:
            check_pool(run.engine.pool, run.block_tables)
        except InvariantError as error:
            raise Counterexample(f"after {run.steps} steps: {error}") from None

    def ended(self, run: Run) -> None:
        pool = run.engine.pool
        if pool.num_free != pool.num_blocks:
            raise Counterexample(f"all is over, and {pool.num_blocks - pool.num_free} blocks are not free")


class SlotsArePrivate(Law):
    """Every scheduled request has a block for every position it writes, and nobody else writes that slot."""

    def executing(self, run: Run, step: ScheduledStep) -> None:
        size = run.engine.pool.block_size
        writers: dict[int, str] = {}
        for row in step.rows:
            for position in range(row.start, row.start + row.num_tokens):
                if position // size >= len(row.block_table):
                    raise Counterexample(
                        f"{row.request_id} writes position {position} in step {run.steps - 1}, and the table "
                        f"that goes to the kernels has {len(row.block_table)} blocks of {size}"
                    )
                slot = row.block_table[position // size] * size + position % size
                other = writers.setdefault(slot, row.request_id)
                if other != row.request_id:
                    raise Counterexample(f"{other} and {row.request_id} both write slot {slot}")


class ReadsItsOwnPast(Law):
    """Each position that a request reads holds what was computed from its own tokens, and nothing else."""

    def event(self, run: Run) -> None:
        executor = run.engine.executor
        assert isinstance(executor, SymbolicExecutor)
        if executor.misread:
            raise Counterexample(f"in step {run.steps - 1}, {executor.misread[0]}")


class OffersOnlyWhatWasComputed(Law):
    """A block in the prefix cache holds, to its last slot, the tokens it is listed under."""

    def event(self, run: Run) -> None:
        pool, executor = run.engine.pool, run.engine.executor
        assert isinstance(executor, SymbolicExecutor)
        for block in pool.blocks:
            tokens: list[int] = []
            prefix = block.prefix
            while prefix is not None:
                tokens[:0], prefix = prefix.tokens, prefix.parent
            past = executor.past(tokens)[-pool.block_size :] if tokens else []
            for offset, number in enumerate(past):
                if executor.content.get(block.block_id * pool.block_size + offset) != number:
                    raise Counterexample(
                        f"after {run.steps} steps the prefix cache offers block {block.block_id}; what lies "
                        f"at its offset {offset} was not computed from the tokens it is offered for"
                    )


class SameTokensAsAlone(Law):
    """Each request samples the tokens it would get alone, each once, and ends where it would end alone."""

    def __init__(self) -> None:
        self.sampled: dict[str, list[int]] = {}

    def stepped(self, run: Run, record: StepRecord, was_unfinished: bool) -> None:
        for name, token in record.sampled.items():
            self.sampled.setdefault(name, []).append(token)

    def ended(self, run: Run) -> None:
        for name, request in run.requests.items():
            alone = request.prompt_token_ids
            for _ in range(expected_length(run, name)):
                alone.append(next_token(alone))
            want = alone[request.num_prompt_tokens :]
            got, output = self.sampled.get(name, []), run.engine.outputs[name]
            if got != output.token_ids:
                raise Counterexample(f"{name} sampled {got}, and its answer is {output.token_ids}")
            if output.finish_reason == "abort":
                want = want[: len(got)]
            if got != want:
                raise Counterexample(f"{name} gets {got}, alone it gets {want} ({output.finish_reason})")


class SomebodyAdvances(Law):
    """In every step some request advances, or none is left; all end within as many steps as there is work."""

    def stepped(self, run: Run, record: StepRecord, was_unfinished: bool) -> None:
        idle = [name for name, count in record.scheduled.items() if count < 1]
        if idle:
            raise Counterexample(f"step {record.step} schedules {idle[0]} with no token to run")
        if was_unfinished and not (record.scheduled or record.returned):
            raise Counterexample(f"requests wait in step {record.step} and nobody runs")


class NobodyStarves(Law):
    """A request is admitted after at most as many steps as those before it can take: Σ prompt + output - 1.

    Why that holds for first come, first served. Order the unfinished requests by arrival. Whoever runs is
    before whoever waits: admission takes the head of the queue, and preemption puts the newest running
    request back to its head. So the oldest request is `running[0]`, or the head of the queue while nothing
    runs. It is never preempted for another, since the newest goes first; it always finds blocks, since once
    all others have given theirs up the whole pool is its own, and it ends where the pool ends; and it is
    first in line for the budget. So it computes at least one token in every step. A request of p prompt and m
    output tokens has p + m - 1 to compute (its last is never fed back): from when it is the oldest, it is at
    most p + m - 1 steps from its end, whatever preemption cost it before. Those before r become the oldest
    one after the other, and none that came after r does before r: in the step after the last of them ends, r
    is the oldest, and in. A static batch ends when its longest request does, within the same sum. Steps whose
    forward failed do not count.

    A scheduler that lets later requests pass, without limit, starves somebody; it fails this theorem.
    """

    def __init__(self) -> None:
        self.deadline: dict[str, int] = {}

    def added(self, run: Run, request: Request, arrival: Arrival) -> None:
        ahead = sum(run.arrivals[other.request_id].work for other in run.unfinished if other is not request)
        self.deadline[request.request_id] = len(run.records) + ahead

    def stepped(self, run: Run, record: StepRecord, was_unfinished: bool) -> None:
        for name in record.admitted:
            self.deadline.pop(name, None)
        for name, latest in self.deadline.items():
            if len(run.records) > latest and not run.requests[name].is_finished:
                raise Counterexample(
                    f"{name} still waits after step {record.step}, and would be in had those before it run "
                    f"one after the other"
                )


class FailedForwardIsUndone(Law):
    """A forward that fails changes nothing: tables, counts, queue and prefix cache are as before it.

    Except where the step preempted somebody: that stays, and only the pool has to be whole.
    """

    def __init__(self) -> None:
        self.before: dict[str, Any] = {}

    def state(self, run: Run) -> dict[str, Any]:
        scheduler = run.engine.scheduler
        line = (*scheduler.running, *scheduler.waiting)
        return {
            "computed": {r.request_id: r.num_computed_tokens for r in run.unfinished},
            "tables": {r.request_id: list(r.block_table) for r in run.unfinished},
            "line": [r.request_id for r in line if not r.is_finished],
            "preemptions": sum(r.num_preemptions for r in run.requests.values()),
            "cached": {b.block_id for b in run.engine.pool.blocks if b.prefix is not None},
        }

    def event(self, run: Run) -> None:
        self.before = self.state(run)

    def failed(self, run: Run) -> None:
        now, before = self.state(run), self.before
        if now["preemptions"] != before["preemptions"]:
            return
        for what in ("computed", "tables", "line"):
            if now[what] != before[what]:
                raise Counterexample(
                    f"the forward of step {run.steps - 1} failed: {what} {now[what]}, before {before[what]}"
                )
        if not now["cached"] <= before["cached"]:
            new = sorted(now["cached"] - before["cached"])
            raise Counterexample(
                f"the forward of step {run.steps - 1} failed, and blocks {new} are offered for sharing"
            )


class FirstComeFirstServed(Law):
    """Whoever runs arrived before whoever waits, and both stand in order of arrival."""

    def event(self, run: Run) -> None:
        scheduler = run.engine.scheduler
        line = [r.request_id for r in (*scheduler.running, *scheduler.waiting)]
        order = {name: index for index, name in enumerate(run.requests)}
        if line != sorted(line, key=order.__getitem__):
            raise Counterexample(f"after {run.steps} steps the running and then the waiting are {line}")


class WithinItsBudget(Law):
    """A step runs at most `max_num_batched_tokens` tokens of at most `max_num_seqs` requests."""

    def stepped(self, run: Run, record: StepRecord, was_unfinished: bool) -> None:
        config, total = run.engine.config, sum(record.scheduled.values())
        if total > config.max_num_batched_tokens:
            raise Counterexample(
                f"step {record.step} runs {record.scheduled}, {total} tokens, and the budget is "
                f"{config.max_num_batched_tokens}"
            )


class NotMoreThanMaxNumSeqs(Law):
    """At most `max_num_seqs` requests run at once."""

    def stepped(self, run: Run, record: StepRecord, was_unfinished: bool) -> None:
        if len(record.running) > run.engine.config.max_num_seqs:
            raise Counterexample(
                f"{len(record.running)} requests run in step {record.step}, and max_num_seqs is "
                f"{run.engine.config.max_num_seqs}"
            )


class NoNeedlessBlock(Law):
    """A request holds as many blocks as its tokens fill: none too few, and none for a token yet to come."""

    def executing(self, run: Run, step: ScheduledStep) -> None:
        size = run.engine.pool.block_size
        for row in step.rows:
            tokens = row.start + row.num_tokens
            if len(row.block_table) != -(-tokens // size):
                raise Counterexample(
                    f"{row.request_id} holds {len(row.block_table)} blocks of {size} for {tokens} tokens"
                )


def expected_length(run: Run, name: str) -> int:
    """How many tokens a request samples, if nobody aborts it: to a limit, or one past the pool's end."""
    request, config = run.requests[name], run.engine.config
    room = min(run.engine.max_model_len, run.engine.pool.capacity + 1) - request.num_prompt_tokens
    assert config.num_blocks is not None
    return max(1, min(run.arrivals[name].max_tokens, room))
