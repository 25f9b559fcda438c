"""Where the examples come from: Hypothesis strategies for ragged batches, cache layouts and cache writes.

Faults live at the edges, so the edges are drawn far more often than chance would: lengths at k·BS - 1, k·BS
and k·BS + 1, one-token rows beside long ones, rows without queries or without keys, more queries than keys,
groups of heads that are no power of two, shared blocks, a pool with one spare block or none.

An example is plain data: numbers, tuples and a seed. It holds no tensor; `draw.py` makes tensors of it, the
same ones every time. Simple values come first in every choice, because Hypothesis shrinks towards them.

Next: `draw.py`, then `attention.py` for the theorems that use these. Schedulers' are in `workloads.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tinycb.proofs.theorem import Scope

__all__ = [
    "CacheWrite",
    "KVLayout",
    "RaggedBatch",
    "Varied",
    "cache_writes",
    "kv_layouts",
    "ragged_batches",
    "row_lengths",
    "varied",
    "with_layout",
]

# By Scope.cost: requests at most, the longest sequence, queries of the whole batch at most, head dims.
_SIZES: dict[int, tuple[int, int, int, tuple[int, ...]]] = {
    1: (3, 80, 96, (16, 32, 24, 64)),
    2: (5, 150, 200, (16, 32, 64, 24, 40, 80, 128)),
    3: (8, 700, 900, (16, 32, 64, 24, 40, 80, 96, 128, 256)),
}
_BLOCK_SIZES = (4, 1, 2, 3, 8, 16, 5, 32)
_SEEDS = st.integers(0, 2**16 - 1)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """How a paged cache holds the requests of a batch.

    shuffle: 0 puts physical blocks in ascending order; any other number is the seed of a random order.
    spare_blocks: blocks that belong to nobody. shared_blocks: so many leading full blocks are those of
    request 0 in every block table, as far as both requests have them. spare_columns: of the block table,
    unused.
    """

    block_size: int = 4
    shuffle: int = 0
    spare_blocks: int = 1
    shared_blocks: int = 0
    spare_columns: int = 0


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """Requests of unequal lengths that go through attention together.

    rows: (q_len, seq_len) of each request: its new tokens, and all tokens it has keys for. scale: None for
    1/sqrt(head_dim). layout: None on the paths that have no cache. seed: of all the numbers in the tensors.
    """

    rows: tuple[tuple[int, int], ...]
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 16
    dtype: str = "float32"
    device: str = "cpu"
    scale: float | None = None
    seed: int = 0
    layout: KVLayout | None = None

    @property
    def num_queries(self) -> int:
        """T, the queries of all requests."""
        return sum(q_len for q_len, _ in self.rows)

    @property
    def num_keys(self) -> int:
        """S, the keys of all requests."""
        return sum(seq_len for _, seq_len in self.rows)


@dataclass(frozen=True, slots=True)
class Varied:
    """A batch, and something to change about it that must not change the answer.

    change: what it means is up to the theorem: an order of the requests, the lengths of chunks, a block size.
    """

    batch: RaggedBatch
    change: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """New keys and values on their way into a cache of num_blocks × block_size slots.

    slots: where each token goes, block * block_size + offset; a negative one is skipped.
    """

    slots: tuple[int, ...]
    num_blocks: int = 2
    block_size: int = 4
    kv_heads: int = 1
    head_dim: int = 16
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0


def row_lengths(block_size: int, longest: int) -> SearchStrategy[int]:
    """Lengths from 0 to `longest`, most of them within one of a multiple of the block size."""
    blocks = st.integers(1, max(1, min(4, longest // block_size)))
    edges = st.builds(lambda n, off: n * block_size + off, blocks, st.sampled_from((0, 1, -1)))
    tiles = st.builds(
        lambda n, off: n + off, st.sampled_from((16, 32, 48, 64, 128, 256)), st.sampled_from((0, 1, -1))
    )
    any_length = st.one_of(st.integers(0, 9), edges, edges, st.integers(0, longest), tiles)
    return any_length.map(lambda length: min(length, longest))


@st.composite
def _row(draw: DrawFn, block_size: int, longest: int) -> tuple[int, int]:
    """(q_len, seq_len): a decode step, a prompt, a chunk, an idle row, or a row padded beyond its keys."""
    seq_len = draw(row_lengths(block_size, longest))
    kind = draw(st.sampled_from(("decode", "prompt", "chunk", "padded", "idle", "decode")))
    if kind == "decode":
        return 1, seq_len
    if kind == "prompt":
        return seq_len, seq_len
    if kind == "chunk":
        return draw(st.integers(1, max(1, seq_len))), seq_len
    if kind == "padded":
        return seq_len + draw(st.integers(1, 3)), seq_len
    return 0, seq_len


@st.composite
def kv_layouts(draw: DrawFn, block_size: int | None = None) -> KVLayout:
    """Cache layouts: shuffled, shared, nearly full or roomy. block_size: None for any."""
    return KVLayout(
        block_size=draw(st.sampled_from(_BLOCK_SIZES)) if block_size is None else block_size,
        shuffle=draw(st.one_of(st.just(0), st.integers(1, 999))),
        spare_blocks=draw(st.sampled_from((1, 0, 3))),
        shared_blocks=draw(st.sampled_from((0, 0, 1, 2))),
        spare_columns=draw(st.sampled_from((0, 0, 1, 3))),
    )


@st.composite
def ragged_batches(
    draw: DrawFn,
    scope: Scope | None = None,
    *,
    paged: bool = False,
    min_requests: int = 1,
    max_keys: int | None = None,
    head_dims: tuple[int, ...] | None = None,
) -> RaggedBatch:
    """Batches of one request or several, with at least one query.

    paged: with a cache layout. max_keys: of all requests together; None for what `scope.cost` allows.
    """
    scope = scope or Scope()
    max_requests, longest, max_queries, dims = _SIZES[scope.cost]
    layout = draw(kv_layouts()) if paged else None
    block_size = draw(st.sampled_from(_BLOCK_SIZES)) if layout is None else layout.block_size
    row = _row(block_size, longest if max_keys is None else min(longest, max_keys))
    rows = draw(st.lists(row, min_size=min_requests, max_size=max(min_requests, max_requests)))
    heads, kv_heads = draw(st.sampled_from(scope.heads))
    return RaggedBatch(
        rows=_within(rows, max_queries, max_keys),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from(head_dims or dims)),
        dtype=draw(st.sampled_from(scope.dtypes)),
        device=scope.device,
        scale=draw(st.sampled_from((None, None, 0.5, 0.0625))),
        seed=draw(_SEEDS),
        layout=layout,
    )


def _within(
    rows: list[tuple[int, int]], max_queries: int, max_keys: int | None
) -> tuple[tuple[int, int], ...]:
    """Cut what goes over the limits, last rows first to suffer; give the batch a query if it has none."""
    kept = []
    for q_len, seq_len in rows:
        if max_keys is not None and seq_len > max_keys:
            q_len, seq_len = min(q_len, 1), max_keys
        q_len = min(q_len, max_queries)
        max_queries -= q_len
        max_keys = None if max_keys is None else max_keys - seq_len
        kept.append((q_len, seq_len))
    if not any(q_len for q_len, _ in kept):
        kept[0] = (1, kept[0][1])
    return tuple(kept)


def varied(batches: SearchStrategy[RaggedBatch], change: Any) -> SearchStrategy[Varied]:
    """Batches with a change for each. change: a function from a batch to a strategy of tuples of numbers."""
    return batches.flatmap(lambda batch: change(batch).map(lambda numbers: Varied(batch, tuple(numbers))))


def with_layout(batch: RaggedBatch, **changes: Any) -> RaggedBatch:
    """The batch in a cache of another layout."""
    return replace(batch, layout=replace(batch.layout or KVLayout(), **changes))


@st.composite
def cache_writes(draw: DrawFn, scope: Scope | None = None) -> CacheWrite:
    """Writes of some tokens into slots of their own, the first and the last of the cache often among them."""
    scope = scope or Scope()
    most, _, _, dims = _SIZES[scope.cost]
    block_size = draw(st.sampled_from(_BLOCK_SIZES))
    num_blocks = draw(st.integers(1, 4 * most))
    last = num_blocks * block_size - 1
    slot = st.one_of(st.integers(0, last), st.just(-1), st.just(last), st.just(0), st.just(-last - 1))
    taken: set[int] = set()
    slots: list[int] = []
    for wanted in draw(st.lists(slot, min_size=1, max_size=14 * most)):
        free = wanted if wanted < 0 else next((s for s in range(wanted, last + 1) if s not in taken), -1)
        taken.add(free)
        slots.append(free)
    return CacheWrite(
        slots=tuple(slots),
        num_blocks=num_blocks,
        block_size=block_size,
        kv_heads=draw(st.sampled_from(sorted({kv_heads for _, kv_heads in scope.heads}))),
        head_dim=draw(st.sampled_from(dims)),
        dtype=draw(st.sampled_from(scope.dtypes)),
        device=scope.device,
        seed=draw(_SEEDS),
    )
