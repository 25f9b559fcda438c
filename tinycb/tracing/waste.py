"""What one step computed or held for nothing, counted from its record.

Knows no step but the one it is given. Next: `metrics.py`, which adds the steps up.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinycb.config import EngineConfig
from tinycb.tracing.records import StepRecord

__all__ = ["Waste", "step_waste"]


@dataclass(frozen=True, slots=True)
class Waste:
    """What a step, or a run, computed or held for nothing.

    padded_tokens: rows of the forward that belong to no request's token. idle_slots: places in the batch of
    requests that are done. unused_budget: tokens that `max_num_batched_tokens` still had room for in a
    forward. slack_in_last_blocks: slots of each scheduled request's newest block that hold nothing yet.
    recomputed_tokens: tokens that had been computed before a preemption.
    """

    padded_tokens: int = 0
    idle_slots: int = 0
    unused_budget: int = 0
    slack_in_last_blocks: int = 0
    recomputed_tokens: int = 0

    def __add__(self, other: Waste) -> Waste:
        return Waste(
            self.padded_tokens + other.padded_tokens,
            self.idle_slots + other.idle_slots,
            self.unused_budget + other.unused_budget,
            self.slack_in_last_blocks + other.slack_in_last_blocks,
            self.recomputed_tokens + other.recomputed_tokens,
        )


def step_waste(record: StepRecord, config: EngineConfig) -> Waste:
    """The waste of one step. One that runs nothing wastes nothing, and only chunked batching has a budget.

    `recomputed_tokens` is the record's own `num_recomputed`, which a `MetricsCollector` has filled in.
    """
    scheduled, computed, size = record.scheduled, record.num_computed, config.block_size
    if not scheduled:
        return Waste()
    budget = config.max_num_batched_tokens if config.batching == "chunked" else None
    return Waste(
        padded_tokens=record.num_padded,
        idle_slots=len(record.running) - len(scheduled) if record.pad else 0,
        unused_budget=budget - sum(scheduled.values()) if budget is not None else 0,
        slack_in_last_blocks=sum([-(computed[name] + count) % size for name, count in scheduled.items()]),
        recomputed_tokens=record.num_recomputed,
    )
