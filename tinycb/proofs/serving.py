"""Theorems about schedulers: what a request gets does not depend on who else is served.

About "scheduler", the subject is a Scheduler class, yours or ours, or the name of a policy. It runs inside a
real engine on a symbolic cache (`serving_run.py`), so an example takes milliseconds. About "chunked": what
chunked prefill promises beyond that. An engine's theorems, on a real model, are in `engine_theorems.py`.

    from tinycb.proofs.serving import SCHEDULER
    for theorem in SCHEDULER:
        theorem.prove(MyScheduler)

Next: `laws.py`, which says what must hold, and `workloads.py` for the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from tinycb.engine import Engine
from tinycb.proofs import laws
from tinycb.proofs.serving_run import Law, Run, SymbolicExecutor, serve
from tinycb.proofs.theorem import Counterexample, Scope, Theorem
from tinycb.proofs.workloads import Serving, servings
from tinycb.scheduling import Scheduler
from tinycb.tracing.records import StepRecord

__all__ = ["CHUNKED", "SCHEDULER", "scheduler_engine", "write_trace"]

Subject = type[Scheduler] | str


def scheduler_engine(subject: Subject, example: Serving, trace: Path | None = None) -> Engine:
    """The subject in a real engine, on a symbolic cache."""
    config = replace(example.config, batching=subject)
    return Engine(config, SymbolicExecutor(config.block_size), trace=trace, clock=lambda: 0.0)


def _examples(scope: Scope) -> SearchStrategy[Serving]:
    return servings(max_requests=8 if scope.cost > 1 else 4, batching=("chunked",))


def _check(law: type[Law], subject: Subject, example: Serving, trace: Path | None = None) -> None:
    serve(partial(scheduler_engine, subject, example, trace), example, law())


def _theorem(name: str, about: str, law: type[Law], max_examples: int = 100) -> Theorem:
    statement = (law.__doc__ or "").partition("\n")[0]
    return Theorem(name, about, statement, _examples, partial(_check, law), max_examples)


def _same_decisions(subject: Subject, example: Serving, trace: Path | None = None) -> None:
    """Twice the same, the second time under names that sort and hash otherwise."""
    make = partial(scheduler_engine, subject, example, trace)
    runs = [
        serve(make, example, Law(), "q{}".format),
        serve(make, example, Law(), lambda index: f"z{99 - index}"),
    ]
    first, second = ([_choices(run, record) for record in run.records] for run in runs)
    for step, (once, again) in enumerate(zip(first, second, strict=False)):
        if once != again:
            raise Counterexample(f"the same inputs, and step {step} is once {once} and once {again}")


def _choices(run: Run, record: StepRecord) -> Mapping[str, Any]:
    """What was decided in a step, with requests numbered in order of arrival."""
    number = {name: index for index, name in enumerate(run.requests)}
    return {
        "scheduled": [(number[name], count) for name, count in record.scheduled.items()],
        "admitted": [number[name] for name in record.admitted],
        "preempted": [number[name] for name in record.preempted],
        "returned": [number[name] for name in record.returned],
        "blocks": {number[name]: blocks for name, blocks in record.blocks_allocated.items()},
        "hits": {number[name]: tokens for name, tokens in record.prefix_hits.items()},
        "free": record.num_free_blocks,
    }


SCHEDULER = (
    _theorem("pool_is_whole", "scheduler", laws.PoolIsWhole),
    _theorem("slots_are_private", "scheduler", laws.SlotsArePrivate),
    _theorem("reads_its_own_past", "scheduler", laws.ReadsItsOwnPast),
    _theorem("offers_only_what_was_computed", "scheduler", laws.OffersOnlyWhatWasComputed, 200),
    _theorem("same_tokens_as_alone", "scheduler", laws.SameTokensAsAlone),
    _theorem("somebody_advances", "scheduler", laws.SomebodyAdvances),
    _theorem("nobody_starves", "scheduler", laws.NobodyStarves),
    _theorem("failed_forward_is_undone", "scheduler", laws.FailedForwardIsUndone),
    _theorem("not_more_than_max_num_seqs", "scheduler", laws.NotMoreThanMaxNumSeqs, 50),
    Theorem(
        "same_decisions_from_the_same_inputs",
        "scheduler",
        "The same arrivals bring the same decisions, step by step, whatever the requests are called.",
        _examples,
        _same_decisions,
        50,
    ),
)
CHUNKED = (
    _theorem("within_its_budget", "chunked", laws.WithinItsBudget),
    _theorem("first_come_first_served", "chunked", laws.FirstComeFirstServed, 150),
    _theorem("no_needless_block", "chunked", laws.NoNeedlessBlock),
)


def write_trace(theorem: Theorem, subject: Any, example: Serving, path: str | Path) -> BaseException | None:
    """Run one example of a theorem of this kit again and record it, to be stepped through.

    Returns what it raised, or None if the example agrees. The trace ends with the step that failed.
    """
    check: Callable[..., None] = theorem.check
    try:
        check(subject, example, trace=Path(path))
    except Exception as error:
        return error
    return None
