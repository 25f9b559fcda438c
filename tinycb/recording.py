"""From what happens to the step's record, and on to the trace. Only copies and counts; decides nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from tinycb.config import EngineConfig
from tinycb.executors import Executor, ScheduledStep
from tinycb.output_text import TextTokenizer
from tinycb.request import Request
from tinycb.scheduling import Decision, Reason, Scheduler, SchedulerOutput
from tinycb.tracing.codec import TraceError
from tinycb.tracing.header import make_header
from tinycb.tracing.records import NewRequest, StepRecord
from tinycb.tracing.writer import TraceWriter

__all__ = [
    "RecordSink",
    "add_freed",
    "note_abort",
    "note_arrival",
    "note_choice",
    "note_failure",
    "note_refusal",
    "note_return",
    "open_trace",
    "write",
]


class RecordSink(Protocol):
    """Where an engine puts its records."""

    def write(self, record: StepRecord) -> None: ...

    def close(self) -> None: ...


def open_trace(
    trace: str | Path | RecordSink | None, config: EngineConfig, executor: Executor
) -> RecordSink | None:
    """A path becomes a file with the header of this run. Raises TraceError if it cannot be made."""
    if not isinstance(trace, str | Path):
        return trace
    header = make_header(config, model=executor.name, eos_token_ids=executor.eos_token_ids)
    return TraceWriter(trace, header)


def write(trace: RecordSink, record: StepRecord) -> TraceError | None:
    """Put the record away. A full disk costs the trace and no answer: it is warned of, and returned."""
    try:
        trace.write(record)
    except TraceError as error:
        warnings.warn(f"{error}; the run goes on without its trace", RuntimeWarning, stacklevel=4)
        return error
    return None


# ── between two steps ─────────────────────────────────────────────────────────────────────────────────


def note_arrival(
    record: StepRecord, request: Request, prompt: str | None, tokenizer: TextTokenizer | None
) -> None:
    """In full: enough to run the request again. tokenizer: None where nobody reads texts."""
    texts = [tokenizer.token_text(token) for token in request.token_ids] if tokenizer is not None else None
    record.arrived.append(request.request_id)
    record.new_requests.append(
        NewRequest(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling_params=asdict(request.sampling_params),
            arrival_time=request.arrival_time or 0.0,
            seed=request.seed,
            prompt=prompt,
            texts=texts,
        )
    )


def note_refusal(record: StepRecord, request: Request, error: ValueError) -> None:
    name = str(request.request_id)
    record.refused[name] = str(error)
    record.decisions.append(Decision(name, "refuse", Reason.REFUSED, {"why": str(error)}))


def note_abort(record: StepRecord, request: Request, freed: list[int]) -> None:
    name = request.request_id
    numbers = {"output": request.num_output_tokens, "computed": request.num_computed_tokens}
    record.aborted.append(name)
    record.decisions.append(Decision(name, "abort", Reason.ABORTED, numbers))
    if freed:
        record.blocks_freed[name] = freed


# ── in a step ─────────────────────────────────────────────────────────────────────────────────────────


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


def note_return(record: StepRecord, request_id: str, finish_step: int) -> None:
    """An answer goes back, with static batching later than it was there."""
    record.returned.append(request_id)
    held = record.step - finish_step
    if held:
        record.decisions.append(Decision(request_id, "return", Reason.RETURNED, {"held": held}))
