"""Continuous batching: after every forward, whoever is done leaves and whoever waits comes in.

    step      1   2   3   4   5   6   7
    A        ███ ███ ███ ███ ███ ███ ███
    B        ███ ███                         leaves at once, with its answer
    C                ███ ███ ███ ███         takes the free slot, its whole prompt in one step

Running requests decode one token each and an admitted prompt runs whole, in the same forward. How much work
one admission may bring is what this leaves open: `chunked.py`. The idea is Orca's iteration-level scheduling
(Yu et al., OSDI 2022).
"""

from __future__ import annotations

from tinycb.scheduling.decisions import Reason
from tinycb.scheduling.scheduler import Scheduler, SchedulerOutput

__all__ = ["ContinuousScheduler"]


class ContinuousScheduler(Scheduler):
    """First come, first served, as `max_num_seqs` and the pool allow; no limit on the tokens of a step."""

    def schedule(self) -> SchedulerOutput:
        output = SchedulerOutput()

        index = 0
        while index < len(self.running):
            request = self.running[index]
            num_tokens = request.num_tokens - request.num_computed_tokens
            if not self.grow(request, num_tokens, output):
                break
            self.run(request, num_tokens, output)
            index += 1

        while self.waiting:
            head = self.waiting[0]
            if output.preempted:
                self.wait(head, Reason.AFTER_PREEMPTION, output, preempted=len(output.preempted))
                break
            if len(self.running) == self.config.max_num_seqs:
                limit = self.config.max_num_seqs
                self.wait(head, Reason.MAX_NUM_SEQS, output, running=len(self.running), limit=limit)
                break
            if not self.admit(head, None, output):
                break
        return self.close(output)
