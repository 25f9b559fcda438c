"""From the scheduler's choice to the step's record. Only copies and counts; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tinycb.executors import ScheduledStep
from tinycb.output_text import TextTokenizer
from tinycb.request import Request
from tinycb.scheduling import Scheduler, SchedulerOutput
from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["add_freed", "describe", "note_choice", "note_failure"]


def note_choice(
    record: StepRecord, output: SchedulerOutput, step: ScheduledStep, scheduler: Scheduler
) -> None:
    """The step ran: put down what was chosen, and where its rows and tables can be looked up."""
    record.scheduled = output.scheduled
    record.num_computed = output.num_computed
    record.admitted = [request.request_id for request in output.admitted]
    record.preempted = [request.request_id for request in output.preempted]
    record.num_waiting = len(scheduler.waiting)
    record.num_free_blocks = output.num_free_blocks
    record.blocks_allocated = output.blocks_allocated
    record.blocks_cached = output.blocks_cached
    record.prefix_hits = output.prefix_hits
    record.decisions += output.decisions
    record.block_size = scheduler.pool.block_size
    record.pad = output.pad
    record.rows_source = lambda: step.rows
    if output.pad and output.scheduled:
        width = max(output.scheduled.values())
        record.num_padded = len(output.requests) * width - sum(output.scheduled.values())


def note_failure(
    record: StepRecord, output: SchedulerOutput, scheduler: Scheduler, error: BaseException
) -> None:
    """The step failed and was undone: only what it preempted remains of it."""
    record.error = f"{type(error).__name__}: {error}"
    record.preempted = [request.request_id for request in output.preempted]
    add_freed(record, output.blocks_freed)
    record.decisions += [decision for decision in output.decisions if decision.action == "preempt"]
    record.running = [request.request_id for request in scheduler.running]
    record.num_waiting = len(scheduler.waiting)
    record.num_free_blocks = scheduler.pool.num_free
    record.block_size = scheduler.pool.block_size


def add_freed(record: StepRecord, blocks_freed: Mapping[str, list[int]]) -> None:
    """An id may have been aborted before the step and be in use again: neither hides the other's blocks."""
    for request_id, blocks in blocks_freed.items():
        record.blocks_freed[request_id] = record.blocks_freed.get(request_id, []) + blocks


def describe(request: Request, prompt: str | None, tokenizer: TextTokenizer | None) -> NewRequest:
    """An arrival, in full: enough to run the request again."""
    return NewRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling_params=asdict(request.sampling_params),
        arrival_time=request.arrival_time or 0.0,
        seed=request.seed,
        prompt=prompt,
        texts=[tokenizer.token_text(token) for token in request.token_ids] if tokenizer is not None else None,
    )
