"""Chunked prefill: continuous batching under a budget of tokens a step.

    step      1   2   3   4   5   6
    A        █   █   █   █   █   █      decodes first, one token each: no step makes it wait
    B        █   █   █   █   █   █
    C        ██████ ██████ ████ █  █    what is left of the budget goes to chunks of prompts

A request has `num_computed_tokens`, which chases `num_tokens`; a step runs as much of the gap as the budget
has room for. That one rule covers a whole prompt, a chunk of one, a prefix hit, a recompute after a
preemption, and a decode (a gap of one). Decisions equal vLLM v1's with the same settings. The idea is
Sarathi-Serve's (Agrawal et al., OSDI 2024).
"""

from __future__ import annotations

from tinycb.scheduling.decisions import Decision, Reason
from tinycb.scheduling.scheduler import Scheduler, SchedulerOutput

__all__ = ["ChunkedScheduler"]


class ChunkedScheduler(Scheduler):
    """Running requests first, in order; then admissions; at most `max_num_batched_tokens` together."""

    def schedule(self) -> SchedulerOutput:
        output = SchedulerOutput()
        limit = budget = self.config.max_num_batched_tokens

        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            gap = request.num_tokens - request.num_computed_tokens
            num_tokens = min(gap, budget)
            if not self.grow(request, num_tokens, output):
                break
            if gap > 1:
                numbers = {"tokens": num_tokens, "remaining": gap - num_tokens, "budget": budget}
                output.decisions.append(Decision(request.request_id, "prefill", Reason.CHUNK, numbers))
            self.run(request, num_tokens, output)
            budget -= num_tokens
            index += 1
        for request in self.running[index:]:
            self.wait(request, Reason.BUDGET_SPENT, output, limit=limit)

        while self.waiting:
            head = self.waiting[0]
            if output.preempted:
                self.wait(head, Reason.AFTER_PREEMPTION, output, preempted=len(output.preempted))
                break
            if budget == 0:
                self.wait(head, Reason.BUDGET_SPENT, output, limit=limit)
                break
            if len(self.running) == self.config.max_num_seqs:
                seqs = self.config.max_num_seqs
                self.wait(head, Reason.MAX_NUM_SEQS, output, running=len(self.running), limit=seqs)
                break
            if not self.admit(head, budget, output):
                break
            budget -= output.scheduled[head.request_id]
        return self.close(output)
