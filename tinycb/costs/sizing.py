"""The engine's knobs that follow from a device and a model, where nobody gives them.

num_blocks               what is left of the usable memory beside the weights
max_num_batched_tokens   the rows at which matrix products stop waiting for memory, up to a multiple of 64:
                         below it tokens are nearly free, above it each one costs
max_num_seqs             requests of the traffic's mean length that fit, at most 256 and the budget
"""

from __future__ import annotations

from dataclasses import dataclass

from tinycb.costs.roofline import CostModel
from tinycb.memory import MemoryBudget

__all__ = ["USABLE", "Sizing", "size_engine"]

USABLE = 0.9  # of the memory; the rest is for activations and the allocator, as in vLLM
MAX_NUM_SEQS = 256
MAX_BUDGET = 8192


@dataclass(frozen=True, slots=True)
class Sizing:
    num_blocks: int
    max_num_batched_tokens: int
    max_num_seqs: int


def size_engine(cost: CostModel, memory: int, block_size: int, mean_length: float) -> Sizing:
    """memory: usable bytes. mean_length: tokens of a request, prompt and output.

    Raises ValueError if the weights do not fit.
    """
    blocks = MemoryBudget.of(cost.shape, memory, cost.dtype, block_size).num_blocks
    balanced = cost.balanced_rows(limit=MAX_BUDGET) or MAX_BUDGET
    budget = -(-balanced // 64) * 64
    fit = int(blocks * block_size / max(mean_length, 1))
    return Sizing(blocks, budget, max(1, min(MAX_NUM_SEQS, fit, budget)))
