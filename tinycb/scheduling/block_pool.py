"""The paged KV cache's bookkeeping: which block is whose, which is free, and which can be shared.

    block_size 4, a prompt of 10 tokens that owns blocks 3, 0 and 5:

      position    0 1 2 3 | 4 5 6 7 | 8 9 . .
      logical        0    |    1    |    2          position // block_size
      physical       3    |    0    |    5          block_table[logical]

    the free list      front ─► [ 7  2  9 ] [ 4  1 ] ◄─ back
                                 no prefix   hold a cached prefix, least recently used first

Blocks are taken from the front. Freed blocks that hold no cached prefix go to the front, so they are reused
first; those that do go to the back, so that a prefix lives as long as memory lasts. A hit takes its blocks
out of the middle of the list.

Pure Python: no tensors here, only numbers of blocks. Next: `scheduler.py`, which decides who gets them. The
layout and the order of the free list are vLLM's (`vllm/v1/core/block_pool.py`); the code is not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from tinycb.request import Request

__all__ = ["Block", "BlockPool", "Prefix", "prefix_hash"]


def prefix_hash(parent_hash: int, tokens: tuple[int, ...]) -> int:
    """The hash of a prefix: of its last block's tokens and of the prefix before them."""
    return hash((parent_hash, tokens))


class Prefix:
    """The identity of a full block: its tokens and all tokens before them, as a chain.

    Equal hashes only say where to look: two prefixes are equal when their tokens are.
    """

    __slots__ = ("hash", "parent", "tokens")

    def __init__(self, parent: Prefix | None, tokens: tuple[int, ...]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.hash: int = prefix_hash(parent.hash if parent else 0, tokens)

    def same_as(self, other: Prefix) -> bool:
        """Compare token by token; chains that share an ancestor stop there."""
        mine: Prefix | None = self
        theirs: Prefix | None = other
        while mine is not theirs:
            if mine is None or theirs is None or mine.tokens != theirs.tokens:
                return False
            mine, theirs = mine.parent, theirs.parent
        return True


class Block:
    """A block of the pool: how many block tables hold it, and the prefix it caches, if any."""

    __slots__ = ("block_id", "prefix", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.prefix: Prefix | None = None

    def __repr__(self) -> str:
        return f"Block({self.block_id}, ref_count={self.ref_count}, cached={self.prefix is not None})"


class BlockPool:
    """Blocks 0 … num_blocks - 1, each owned by some block tables or free.

    `evicted` collects the blocks that lost their cached prefix; whoever records a step empties it.
    """

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool = True) -> None:
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.blocks = [Block(i) for i in range(num_blocks)]
        self.free_list: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.cached: dict[int, list[Block]] = {}  # by hash; several blocks may hold one prefix
        self.evicted: list[int] = []

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def num_free(self) -> int:
        return len(self.free_list)

    @property
    def capacity(self) -> int:
        """Tokens the pool can hold."""
        return len(self.blocks) * self.block_size

    # ── taking and giving back ────────────────────────────────────────────────────────────────────────

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks from the front of the free list; the caller has made sure there are enough."""
        taken = []
        for _ in range(count):
            block_id, _ = self.free_list.popitem(last=False)
            block = self.blocks[block_id]
            if block.prefix is not None:
                self.uncache(block_id)
                self.evicted.append(block_id)
            block.ref_count = 1
            taken.append(block_id)
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """Hold cached blocks once more; those that were free leave the free list."""
        for block_id in block_ids:
            block = self.blocks[block_id]
            if block.ref_count == 0:
                del self.free_list[block_id]
            block.ref_count += 1

    def free(self, block_ids: Sequence[int]) -> list[int]:
        """Give up one hold on each block, last block first, and return those that became free.

        Last first, because the head of a prefix is worth more than its tail: it is evicted later.
        """
        freed = []
        for block_id in reversed(block_ids):
            block = self.blocks[block_id]
            block.ref_count -= 1
            if block.ref_count == 0:
                freed.append(block_id)
                self.free_list[block_id] = None
        for block_id in reversed(freed):
            if self.blocks[block_id].prefix is None:
                self.free_list.move_to_end(block_id, last=False)
        return freed

    # ── prefix caching ────────────────────────────────────────────────────────────────────────────────

    def find_prefix(self, request: Request) -> list[int]:
        """The longest chain of cached blocks that begins the request's tokens, without the last token.

        The last token is always computed: its logits are what the request came for.
        """
        if not self.prefix_caching:
            return []
        hits: list[int] = []
        for index in range((request.num_tokens - 1) // self.block_size):
            block = self.lookup(self.prefix(request, index))
            if block is None:
                break
            request.prefixes[index] = block.prefix  # the same object from here on: comparing it is free
            hits.append(block.block_id)
        return hits

    def prefix(self, request: Request, index: int) -> Prefix:
        """The identity of the request's full block `index`, made when first asked for."""
        prefixes = request.prefixes
        while len(prefixes) <= index:
            start = len(prefixes) * self.block_size
            tokens = tuple(request.token_ids[start : start + self.block_size])
            prefixes.append(Prefix(prefixes[-1] if prefixes else None, tokens))
        return prefixes[index]

    def lookup(self, prefix: Prefix) -> Block | None:
        """A block that holds this very prefix: the hash finds candidates, the tokens decide."""
        for block in self.cached.get(prefix.hash, ()):
            if block.prefix is not None and block.prefix.same_as(prefix):
                return block
        return None

    def cache_full_blocks(self, request: Request, start: int, end: int) -> list[int]:
        """Offer for sharing the blocks that computing positions start … end - 1 fills to the last slot."""
        added = []
        for index in range(start // self.block_size, end // self.block_size):
            block = self.blocks[request.block_table[index]]
            if block.prefix is None:
                block.prefix = self.prefix(request, index)
                self.cached.setdefault(block.prefix.hash, []).append(block)
                added.append(block.block_id)
        return added

    def uncache(self, block_id: int) -> None:
        """Stop offering a block: its contents are about to change, or never came to be."""
        block = self.blocks[block_id]
        assert block.prefix is not None
        candidates = self.cached[block.prefix.hash]
        candidates.remove(block)
        if not candidates:
            del self.cached[block.prefix.hash]
        block.prefix = None
