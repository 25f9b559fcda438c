"""What every way of batching shares: the queue, the running batch, admission, preemption and undoing.

The three policies, `static.py`, `continuous.py` and `chunked.py`, are each one `schedule` method on top of
this; reading them in that order, and their differences, is the lesson. vLLM v1 keeps the same queue and the
same order of decisions in `vllm/v1/core/sched/scheduler.py`.

Pure Python. Nothing here runs a model or knows when a request ends (`engine.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from tinycb.config import EngineConfig
from tinycb.request import Request, RequestStatus
from tinycb.scheduling.block_pool import BlockPool
from tinycb.scheduling.decisions import Decision, Reason

__all__ = ["Scheduler", "SchedulerOutput"]


@dataclass(slots=True)
class SchedulerOutput:
    """One step's choice, and what it takes to undo it.

    requests: the rows of the batch, in order; with static batching a finished one may still hold its slot.
    scheduled: tokens each runs this step. num_computed: tokens each had before.
    sampling: those whose last token this step reaches, so that each gets a new one.
    blocks_allocated, prefix_hits (in tokens), block_tables: by request id. blocks_cached: full blocks that
    this step offers for sharing. num_free_blocks: after allocation. pad: fill every row to the longest.
    """

    requests: list[Request] = field(default_factory=list)
    scheduled: dict[str, int] = field(default_factory=dict)
    num_computed: dict[str, int] = field(default_factory=dict)
    sampling: list[Request] = field(default_factory=list)
    block_tables: dict[str, list[int]] = field(default_factory=dict)
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    blocks_allocated: dict[str, list[int]] = field(default_factory=dict)
    blocks_freed: dict[str, list[int]] = field(default_factory=dict)
    blocks_cached: list[int] = field(default_factory=list)
    prefix_hits: dict[str, int] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    num_free_blocks: int = 0
    pad: bool = False


class Scheduler(ABC):
    """A queue of waiting requests, a list of running ones, and a pool of blocks.

    A class of one's own needs `schedule`; the rest may be inherited. An engine calls `add`, then in each step
    `schedule`, and after the forward `update`, or `undo` if the forward failed; `remove` at any time between.
    """

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self.config = config
        self.pool = pool
        self.block_size = pool.block_size
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    @abstractmethod
    def schedule(self) -> SchedulerOutput:
        """Choose who runs, and give each the blocks for the positions it writes."""

    # ── from outside ──────────────────────────────────────────────────────────────────────────────────

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting or self.running)

    def remove(self, request: Request) -> list[int]:
        """Take a request out wherever it is; returns the blocks that became free."""
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        return self._free(request)

    def update(self, output: SchedulerOutput) -> list[Request]:
        """After the forward: let finished requests go. Returns those whose answer is given back now."""
        finished = [request for request in output.requests if request.finish_reason is not None]
        if finished:
            self.running = [request for request in self.running if not request.is_finished]
            for request in finished:
                output.blocks_freed[request.request_id] = self._free(request)
        return finished

    def undo(self, output: SchedulerOutput) -> None:
        """The forward failed: give back what this step took. What it preempted stays preempted.

        Nobody can have come to depend on a block that this step offered for sharing, because whoever was
        admitted in this step leaves again.
        """
        for block_id in reversed(output.blocks_cached):
            self.pool.uncache(block_id)
        admitted = {request.request_id for request in output.admitted}
        for request in reversed(output.requests):
            taken = output.blocks_allocated.get(request.request_id, [])
            del request.block_table[len(request.block_table) - len(taken) :]
            for block_id in reversed(taken):  # one by one, so that the free list is as it was
                self.pool.free([block_id])
            if request.request_id in admitted:
                self._free(request)  # what is left are the blocks of its prefix hit
                request.num_computed_tokens = 0
                request.status = RequestStatus.PREEMPTED if request.num_preemptions else RequestStatus.WAITING
                self.running.remove(request)
                self.waiting.appendleft(request)

    # ── for the policies ──────────────────────────────────────────────────────────────────────────────

    def run(self, request: Request, num_tokens: int, output: SchedulerOutput) -> None:
        """Put a request that has its blocks into this step's batch."""
        name, start = request.request_id, request.num_computed_tokens
        end = start + num_tokens
        output.requests.append(request)
        output.scheduled[name] = num_tokens
        output.num_computed[name] = start
        output.block_tables[name] = request.block_table
        if end == len(request.token_ids):
            output.sampling.append(request)
        size = self.block_size
        if end // size > start // size and self.pool.prefix_caching:
            output.blocks_cached += self.pool.cache_full_blocks(request, start, end)

    def grow(self, request: Request, num_tokens: int, output: SchedulerOutput) -> bool:
        """Get a running request the blocks for its next `num_tokens`, preempting the newest until it fits.

        False if the request was itself the newest and is now preempted.
        """
        table = request.block_table
        missing = request.num_computed_tokens + num_tokens - len(table) * self.block_size
        if missing <= 0:
            return True
        needs = self._blocks_for(missing)
        while needs > self.pool.num_free:
            victim = self.running.pop()
            self._preempt(victim, request, needs, output)
            if victim is request:
                return False
        taken = self.pool.allocate(needs)
        table += taken
        output.blocks_allocated[request.request_id] = taken
        return True

    def admit(
        self, request: Request, budget: int | None, output: SchedulerOutput, reserve: int | None = None
    ) -> bool:
        """Let the head of the queue in, if blocks allow: its prefix hit, then as many tokens as `budget` has.

        reserve: tokens that must find blocks now, and get them, if more than those that run. Where
        `reserve_full_prompt` is set, blocks for all its tokens must be free, though only those that run are
        taken. False, with the decision that says why, if it has to wait.
        """
        hits = self.pool.find_prefix(request)
        hit_tokens = len(hits) * self.pool.block_size
        todo = request.num_tokens - hit_tokens
        num_tokens = todo if budget is None else min(todo, budget)

        total = max(hit_tokens + num_tokens, reserve or 0)
        take = self._blocks_for(total) - len(hits)
        idle_hits = sum(self.pool.blocks[block_id].ref_count == 0 for block_id in hits)
        must_fit = max(total, request.num_tokens) if self.config.reserve_full_prompt else total
        needs = self._blocks_for(must_fit) - len(hits) + idle_hits
        free = self.pool.num_free
        if needs > free:
            self.wait(request, Reason.NO_FREE_BLOCKS, output, needs=needs, free=free)
            return False

        self.pool.share(hits)
        taken = self.pool.allocate(take)
        request.block_table = hits + taken
        self.waiting.popleft()
        self.running.append(request)
        again = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = request.num_cached_tokens = hit_tokens
        output.admitted.append(request)
        output.blocks_allocated[request.request_id] = taken
        if hit_tokens:
            output.prefix_hits[request.request_id] = hit_tokens
        reason = Reason.READMITTED if again else Reason.ADMITTED
        numbers = {
            "tokens": num_tokens,
            "todo": todo,
            "hit": hit_tokens,
            "needs": take + idle_hits,
            "free": free,
        }
        output.decisions.append(Decision(request.request_id, "admit", reason, numbers))
        self.run(request, num_tokens, output)
        return True

    def wait(self, request: Request, reason: Reason, output: SchedulerOutput, **numbers: int | str) -> None:
        output.decisions.append(Decision(request.request_id, "wait", reason, numbers))

    def close(self, output: SchedulerOutput) -> SchedulerOutput:
        """The choice is made: note what is left of the pool."""
        output.num_free_blocks = self.pool.num_free
        return output

    def _preempt(self, victim: Request, winner: Request, needs: int, output: SchedulerOutput) -> None:
        reason = Reason.PREEMPTED_ITSELF if victim is winner else Reason.PREEMPTED_FOR
        numbers: dict[str, int | str] = {"needs": needs, "free": self.pool.num_free}
        if victim is not winner:
            numbers["winner"] = winner.request_id
        numbers |= {"blocks": len(victim.block_table), "computed": victim.num_computed_tokens}
        output.decisions.append(Decision(victim.request_id, "preempt", reason, numbers))
        output.blocks_freed[victim.request_id] = self._free(victim)
        output.preempted.append(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = RequestStatus.PREEMPTED
        self.waiting.appendleft(victim)

    def _free(self, request: Request) -> list[int]:
        """Give up the request's blocks. Its table becomes a new list: a record may still show the old one."""
        freed = self.pool.free(request.block_table)
        request.block_table = []
        return freed

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
