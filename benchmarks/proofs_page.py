"""Writes docs/proofs.md: what the theorems are tried on, and which planted faults they find.

python -m benchmarks.proofs_page > docs/proofs.md
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator

os.environ.setdefault("TRITON_INTERPRET", "1")

from tinycb.proofs import theorems_about
from tinycb.proofs.batch_table import BatchRow, batch_table
from tinycb.proofs.example_table import ExampleRow, example_table
from tinycb.proofs.fault_table import FaultRow, fault_table

INTRODUCTION = """# What is proven, on what, and how strongly

Written by `python -m benchmarks.proofs_page`. A theorem is tried on this many examples, and on ten times as
many with `HYPOTHESIS_PROFILE=thorough`. Their seed is fixed; Hypothesis also picks up numbers from modules
that are loaded, so the counts of another process may differ a little. Percentages are of examples.
"""


def page() -> Iterator[str]:
    """The page, line by line."""
    yield INTRODUCTION
    yield "## Attention through a block table\n"
    yield from table(
        [
            "theorem",
            "examples",
            "requests",
            "queries",
            "keys",
            "length at an edge",
            "one-token rows beside long",
        ],
        [attention_row(row) for row in batch_table() if row.about == "paged"],
    )
    yield "\nMask and varlen have the same theorems where they make sense, and as many examples.\n"
    yield "## Schedulers and engines\n"
    yield from table(
        [
            "theorem",
            "examples",
            "requests",
            "widest batch",
            "preempting",
            "prefix hits",
            "aborts",
            "failed forwards",
        ],
        [serving_row(row) for row in example_table()],
    )
    yield "\n## Statements\n"
    for kind in ("paged", "write_kv", "scheduler", "chunked", "engine"):
        for theorem in theorems_about(kind):
            yield f"- **{theorem.name}** ({kind}): {theorem.statement}"
    yield "\n## Planted faults\n"
    yield "Each rewrites one line of the shipped source; `tinycb check --planted` tries them.\n"
    rows = list(fault_table())
    yield from table(["fault", "in", "found by", "after"], [fault_row(row) for row in rows])
    found = [row for row in rows if row.needed is not None]
    worst = max(found, key=lambda row: row.needed or 0)
    yield (
        f"\n{len(found)} of {len(rows)} are found. The hardest, `{worst.fault.name}`, "
        f"took {worst.needed} of {worst.budget} examples."
    )


def table(headings: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|---" * len(headings) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def attention_row(row: BatchRow) -> list[str]:
    means = [f"{value:.1f}" for value in (row.requests, row.queries, row.keys)]
    return [row.theorem, str(row.examples), *means, f"{row.edge:.0f} %", f"{row.mixed:.0f} %"]


def serving_row(row: ExampleRow) -> list[str]:
    shares = (row.preempting, row.with_prefix_hits, row.with_aborts, row.with_failures)
    means = [f"{row.requests:.1f}", f"{row.largest_batch:.1f}"]
    return [row.theorem, str(row.examples), *means, *(f"{share:.0f} %" for share in shares)]


def fault_row(row: FaultRow) -> list[str]:
    after = f"{row.needed} of {row.budget}" if row.is_found else f"not found in {row.budget}"
    return [row.fault.name, row.fault.module, row.theorem.name, after]


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    sys.stdout.writelines(f"{line}\n" for line in page())
