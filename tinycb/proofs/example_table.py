"""What the examples of the serving theorems look like: how many, how large a batch, how often it gets tight.

    for row in example_table():
        print(row)

A theorem that is tried on batches of one proves nothing about batching, so this is measured, not assumed: the
same examples that a search would try are served, and what happened is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from tinycb.proofs.engine_theorems import ENGINE
from tinycb.proofs.serving import CHUNKED, SCHEDULER, scheduler_engine
from tinycb.proofs.serving_run import Law, Run, serve
from tinycb.proofs.theorem import Theorem
from tinycb.proofs.workloads import Serving

__all__ = ["ExampleRow", "example_table", "examples_of"]


@dataclass(slots=True)
class ExampleRow:
    """Means over the examples of one theorem, and the share of them, in per cent, in which something happens.

    largest_batch: rows of an example's widest step. rows, tokens: of a step that runs something.
    """

    theorem: str
    examples: int = 0
    requests: float = 0.0
    steps: float = 0.0
    largest_batch: float = 0.0
    rows: float = 0.0
    tokens: float = 0.0
    preempting: float = 0.0
    with_prefix_hits: float = 0.0
    with_aborts: float = 0.0
    with_failures: float = 0.0

    def __str__(self) -> str:
        return "  ".join(f"{getattr(self, f.name):>5.1f}" for f in fields(self)[2:]) + f"  {self.theorem}"


def examples_of(theorem: Theorem, policy: str | None = None) -> ExampleRow:
    """Serve a theorem's examples on a symbolic cache and count. policy: None for each example's own."""
    row, busy = ExampleRow(theorem.name), 0

    def count(subject: Any, example: Serving) -> None:
        nonlocal busy
        batching = policy or example.config.batching
        run: Run = serve(lambda: scheduler_engine(batching, example), example, Law())
        sizes = [list(record.scheduled.values()) for record in run.records if record.scheduled]
        busy += len(sizes)
        row.examples += 1
        row.requests += len(example.workload.arrivals)
        row.steps += run.steps
        row.largest_batch += max(map(len, sizes), default=0)
        row.rows += sum(map(len, sizes))
        row.tokens += sum(map(sum, sizes))
        row.preempting += 100 * any(record.preempted for record in run.records)
        row.with_prefix_hits += 100 * any(record.prefix_hits for record in run.records)
        row.with_aborts += 100 * any(record.aborted for record in run.records)
        row.with_failures += 100 * bool(example.workload.failures)

    replace(theorem, check=count).verdict(None)
    for field in fields(row)[2:]:
        number = busy if field.name in ("rows", "tokens") else row.examples
        setattr(row, field.name, getattr(row, field.name) / number)
    return row


def example_table() -> Iterator[ExampleRow]:
    """A row for each theorem about schedulers, run by chunked prefill, and about engines."""
    for theorem in (*SCHEDULER, *CHUNKED):
        yield examples_of(theorem, "chunked")
    for theorem in ENGINE:
        yield examples_of(theorem)
