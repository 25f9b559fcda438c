"""A step's forward: run, or undone as if it had never been chosen.

The engine gives the scheduler's choice and gets the new tokens. Whatever raises on the way, an invariant, the
executor, or the check of its answer, the blocks, counts and cached prefixes of the step are given back first.
Where one request alone went wrong the others go on, and only what that one would have shared is taken back.
"""

from __future__ import annotations

from tinycb.executors import Executor, ExecutorOutput, ScheduledStep
from tinycb.recording import note_choice, note_failure
from tinycb.request import Request
from tinycb.scheduling import BlockPool, Scheduler, SchedulerOutput, check_choice
from tinycb.tracing.records import StepRecord

__all__ = ["run_or_undo", "unshare"]


def run_or_undo(
    output: SchedulerOutput, scheduler: Scheduler, executor: Executor, record: StepRecord, *, check: bool
) -> ExecutorOutput:
    """Run what was chosen and put it down in the record. An exception reaches the caller, after the undoing.

    check: verify first that the choice can be run. With nothing chosen, the executor is not asked.
    """
    step = ScheduledStep(
        output.requests,
        output.scheduled,
        output.num_computed,
        output.block_tables,
        output.sampling,
        output.pad,
    )
    try:
        if check:
            check_choice(scheduler, output)
        result = executor.execute(step) if output.scheduled else ExecutorOutput({})
        if not isinstance(result, ExecutorOutput):
            raise TypeError(f"the executor must return an ExecutorOutput, not {result!r:.80}")
        result.check(step)
    except BaseException as error:
        scheduler.undo(output)
        note_failure(record, output, scheduler, error)
        raise
    note_choice(record, output, step, scheduler)
    return result


def unshare(request: Request, output: SchedulerOutput, pool: BlockPool) -> None:
    """The request went wrong: blocks that it filled in this step are not offered for sharing after all."""
    for block_id in set(output.blocks_cached) & set(request.block_table):
        pool.uncache(block_id)
        output.blocks_cached.remove(block_id)
