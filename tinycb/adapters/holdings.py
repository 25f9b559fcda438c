"""Which request holds which block, kept beside vLLM, so that nothing of it need be asked of vLLM.

Block ids here are the trace's. Decides nothing. Next: `transcript.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Holdings", "Live"]


@dataclass(slots=True)
class Live:
    """What is kept of a request until it has left."""

    num_prompt_tokens: int
    max_tokens: int
    num_tokens: int
    table: list[int] = field(default_factory=list)
    is_preempted: bool = False


class Holdings:
    """num_free: blocks that nobody holds. evicted: blocks that lost their prefix, until somebody takes it."""

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.num_free = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.evicted: list[int] = []
        self._holds: dict[int, int] = {}
        self._cached: set[int] = set()

    def count_idle(self, block_ids: Iterable[int]) -> int:
        """How many of these nobody holds."""
        return sum(block_id not in self._holds for block_id in block_ids)

    def share(self, live: Live, hits: Sequence[int]) -> None:
        """The request begins with blocks of the prefix cache."""
        self.num_free -= self.count_idle(hits)
        for block_id in hits:
            self._holds[block_id] = self._holds.get(block_id, 0) + 1
        live.table = list(hits)

    def take(self, live: Live, blocks: Sequence[int]) -> None:
        """The request gets blocks that were free."""
        for block_id in blocks:
            self._holds[block_id] = 1
            if block_id in self._cached:
                self._cached.remove(block_id)
                self.evicted.append(block_id)
        live.table = [*live.table, *blocks]
        self.num_free -= len(blocks)

    def release(self, live: Live) -> list[int]:
        """Give up all its holds; returns what nobody holds any more, last block first."""
        freed = []
        for block_id in reversed(live.table):
            self._holds[block_id] -= 1
            if not self._holds[block_id]:
                del self._holds[block_id]
                freed.append(block_id)
        live.table = []
        self.num_free += len(freed)
        return freed

    def cache_full_blocks(self, live: Live, start: int, end: int) -> list[int]:
        """The blocks that computing positions start … end - 1 fills, as far as they are new."""
        if not self.prefix_caching:
            return []
        full = live.table[start // self.block_size : end // self.block_size]
        new = [block_id for block_id in full if block_id not in self._cached]
        self._cached.update(new)
        return new
