"""What the examples of the attention theorems look like: how many, how large, how often at an edge.

    for row in batch_table():
        print(row)

A theorem that is tried on one request of three tokens proves nothing about batching, so this is measured: the
same examples that a search would try are drawn and counted, and nothing is run. For schedulers there is
`example_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from tinycb.proofs.registry import theorems_about
from tinycb.proofs.strategies import RaggedBatch, Varied
from tinycb.proofs.theorem import Scope, Theorem

__all__ = ["BatchRow", "batch_table", "batches_of"]


@dataclass(slots=True)
class BatchRow:
    """Means over a theorem's examples, and the per cent of them that have such a request or layout.

    longest: keys of the longest request. edge: a length within one of a multiple of the block size. mixed: a
    single query beside a request of several. blind: more queries than keys. idle: no queries. odd_group:
    H / KH is no power of two. shared: two requests have a block in common. full: no spare block.
    """

    theorem: str
    about: str
    examples: int = 0
    requests: float = 0.0
    queries: float = 0.0
    keys: float = 0.0
    longest: float = 0.0
    edge: float = 0.0
    mixed: float = 0.0
    blind: float = 0.0
    idle: float = 0.0
    odd_group: float = 0.0
    shared: float = 0.0
    full: float = 0.0

    def __str__(self) -> str:
        numbers = "  ".join(f"{getattr(self, field.name):>5.1f}" for field in fields(self)[3:])
        return f"{self.examples:>4}  {numbers}  {self.about}  {self.theorem}"


def batches_of(theorem: Theorem, scope: Scope | None = None) -> BatchRow:
    """Draw a theorem's examples and count."""
    row = BatchRow(theorem.name, theorem.about)

    def count(subject: Any, example: RaggedBatch | Varied) -> None:
        batch = example.batch if isinstance(example, Varied) else example
        size = batch.layout.block_size if batch.layout else 4
        group = batch.heads // batch.kv_heads
        q_lens = [q_len for q_len, _ in batch.rows]
        row.examples += 1
        row.requests += len(batch.rows)
        row.queries += batch.num_queries
        row.keys += batch.num_keys
        row.longest += max(seq_len for _, seq_len in batch.rows)
        row.edge += 100 * any(s >= size - 1 and (s + 1) % size <= 2 for _, s in batch.rows)
        row.mixed += 100 * (1 in q_lens and max(q_lens) > 1)
        row.blind += 100 * any(q_len > seq_len for q_len, seq_len in batch.rows)
        row.idle += 100 * (0 in q_lens)
        row.odd_group += 100 * (group & (group - 1) > 0)
        if batch.layout is not None:
            full = [seq_len // size for _, seq_len in batch.rows]
            row.shared += 100 * (batch.layout.shared_blocks > 0 and full[0] > 0 and any(full[1:]))
            row.full += 100 * (batch.layout.spare_blocks == 0)

    replace(theorem, check=count).verdict(None, scope)
    for field in fields(row)[3:]:
        setattr(row, field.name, getattr(row, field.name) / row.examples)
    return row


def batch_table() -> Iterator[BatchRow]:
    """A row for each theorem about paged attention; those about the other paths have the same batches."""
    for theorem in theorems_about("paged"):
        yield batches_of(theorem)
