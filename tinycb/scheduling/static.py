"""Static batching, the foil: fill a batch, run it to the end of its longest request, then fill the next.

    step      1   2   3   4   5   6   7
    A        ███ ███ ███ ███ ███ ███ ███
    B        ███ ███ ··· ··· ··· ··· ···     finished, but its slot is held, and so is its answer
    C            waits for the whole batch

What it leaves open: `continuous.py`.
"""

from __future__ import annotations

from tinycb.config import EngineConfig
from tinycb.request import Request
from tinycb.scheduling.block_pool import BlockPool
from tinycb.scheduling.decisions import Decision, Reason
from tinycb.scheduling.scheduler import Scheduler, SchedulerOutput

__all__ = ["StaticScheduler"]


class StaticScheduler(Scheduler):
    """Admits only when nothing runs, with blocks for prompt and max_tokens of each reserved at once."""

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        super().__init__(config, pool)
        self._over: list[Request] = []  # of a batch whose last request was aborted; to be given back

    def schedule(self) -> SchedulerOutput:
        output = SchedulerOutput(pad=True)
        if all(request.is_finished for request in self.running):
            self._over += self.running
            output.blocks_freed = {request.request_id: self._free(request) for request in self.running}
            self.running = []
        batch_runs = bool(self.running)
        unfinished = sum(not request.is_finished for request in self.running)

        for request in self.running:
            if request.is_finished:
                output.requests.append(request)
                output.decisions.append(
                    Decision(request.request_id, "hold", Reason.SLOT_HELD, {"unfinished": unfinished})
                )
            else:
                self.run(request, request.num_tokens - request.num_computed_tokens, output)

        while self.waiting:
            head = self.waiting[0]
            if batch_runs:
                self.wait(head, Reason.BATCH_RUNNING, output, unfinished=unfinished)
                break
            if len(self.running) == self.config.max_num_seqs:
                limit = self.config.max_num_seqs
                self.wait(head, Reason.MAX_NUM_SEQS, output, running=len(self.running), limit=limit)
                break
            longest = head.num_prompt_tokens + head.sampling_params.max_tokens
            reserve = min(longest, self.config.max_model_len or longest, self.pool.capacity)
            if not self.admit(head, None, output, reserve):
                break
        return self.close(output)

    def update(self, output: SchedulerOutput) -> list[Request]:
        """Nobody leaves before everybody is done."""
        over, self._over = self._over, []
        if all(request.is_finished for request in self.running):
            over += super().update(output)
        return over

    def remove(self, request: Request) -> list[int]:
        """A request that is given up in mid-batch leaves its blocks, but its slot stays in the batch."""
        return self._free(request) if request in self.running else super().remove(request)
