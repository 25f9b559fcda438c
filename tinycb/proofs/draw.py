"""From an example to the tensors a kernel is called with: the same ones every time.

    contents(batch)          each request's own q, k and v, drawn from the example's seed
    place(batch)             the physical blocks that hold each request
    arguments(kind, drawn)   the packed tensors, in the order of the kernel's positional arguments

Memory that belongs to nobody is filled with `nobody`, NaN unless a theorem asks otherwise: free blocks, the
rest of last blocks, the memory just before and behind every tensor. Unused block table entries are -1.

It does not say what is right (`oracle.py`) and calls nothing (`launch.py`, which is next).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tinycb.proofs.oracle import visible_keys
from tinycb.proofs.strategies import KVLayout, RaggedBatch

__all__ = [
    "Contents", "Drawn", "arguments", "contents", "definition_of_mask", "draw", "guarded", "owners", "place",
    "slots_of", "torch_dtype",
]  # fmt: skip

GUARD = 2  # rows, or blocks, of nobody's memory on either side of a tensor


@dataclass(frozen=True)
class Contents:
    """One request: q (q_len, H, D), its new tokens; k, v (seq_len, KH, D), all its tokens."""

    q: Tensor
    k: Tensor
    v: Tensor


@dataclass(frozen=True)
class Drawn:
    """A batch with its tensors. tables: each request's physical blocks, in order; empty without a cache."""

    batch: RaggedBatch
    requests: tuple[Contents, ...]
    tables: tuple[tuple[int, ...], ...] = ()
    num_blocks: int = 0

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return self.batch.head_dim**-0.5 if self.batch.scale is None else self.batch.scale

    def pick(self, order: Sequence[int]) -> Drawn:
        """Only these requests, in this order, where they were in the cache."""
        return replace(
            self,
            batch=replace(self.batch, rows=tuple(self.batch.rows[r] for r in order)),
            requests=tuple(self.requests[r] for r in order),
            tables=tuple(self.tables[r] for r in order) if self.tables else (),
        )

    def holding(self, requests: Sequence[Contents]) -> Drawn:
        """Other tensors in the same places. Lengths may differ, as long as each fits into its blocks."""
        rows = tuple((len(one.q), len(one.k)) for one in requests)
        return replace(self, batch=replace(self.batch, rows=rows), requests=tuple(requests))


def torch_dtype(name: str) -> torch.dtype:
    """The torch.dtype called "float32", "bfloat16" or "float16"."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def draw(batch: RaggedBatch) -> Drawn:
    """The batch's tensors, and its places in a cache if it has a layout."""
    tables, num_blocks = place(batch)
    return Drawn(batch, contents(batch), tables, num_blocks)


def contents(batch: RaggedBatch) -> tuple[Contents, ...]:
    """Normally distributed q, k and v of unit size; shared blocks hold equal keys and values."""
    drawn: list[Contents] = []
    for r, (q_len, seq_len) in enumerate(batch.rows):
        random = np.random.default_rng([batch.seed, r])
        q = random.standard_normal((q_len, batch.heads, batch.head_dim), np.float32)
        k = random.standard_normal((seq_len, batch.kv_heads, batch.head_dim), np.float32)
        v = random.standard_normal((seq_len, batch.kv_heads, batch.head_dim), np.float32)
        own = Contents(*(torch.from_numpy(array).to(torch_dtype(batch.dtype)) for array in (q, k, v)))
        if r and batch.layout is not None:
            shared = _shared_blocks(batch, r) * batch.layout.block_size
            own.k[:shared], own.v[:shared] = drawn[0].k[:shared], drawn[0].v[:shared]
        drawn.append(own)
    return tuple(drawn)


def _shared_blocks(batch: RaggedBatch, r: int) -> int:
    """How many leading blocks request r has in common with request 0: full ones only."""
    layout = batch.layout or KVLayout()
    full = min(batch.rows[0][1], batch.rows[r][1]) // layout.block_size
    return min(layout.shared_blocks, full) if r else 0


def place(batch: RaggedBatch) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Each request's physical blocks, and how many blocks the cache has; nothing without a layout."""
    if batch.layout is None:
        return (), 0
    layout, taken = batch.layout, itertools.count()
    logical: list[list[int]] = []
    for r, (_, seq_len) in enumerate(batch.rows):
        shared = logical[0][: _shared_blocks(batch, r)] if r else []
        logical.append(shared + [next(taken) for _ in range(-(-seq_len // layout.block_size) - len(shared))])
    num_blocks = max(1, next(taken) + layout.spare_blocks)
    physical = np.arange(num_blocks)
    if layout.shuffle:
        physical = np.random.default_rng(layout.shuffle).permutation(num_blocks)
    return tuple(tuple(int(physical[block]) for block in blocks) for blocks in logical), num_blocks


def slots_of(drawn: Drawn, r: int) -> list[int]:
    """Where request r's keys are, by position: slots of the cache, or rows of the packed k without one."""
    seq_len = drawn.batch.rows[r][1]
    if drawn.batch.layout is None:
        start = sum(seq for _, seq in drawn.batch.rows[:r])
        return list(range(start, start + seq_len))
    size = drawn.batch.layout.block_size
    return [drawn.tables[r][position // size] * size + position % size for position in range(seq_len)]


def owners(drawn: Drawn) -> dict[int, list[tuple[int, int]]]:
    """For each slot that is somebody's: (request, position), several if it is shared."""
    found: dict[int, list[tuple[int, int]]] = {}
    for r in range(len(drawn.requests)):
        for position, slot in enumerate(slots_of(drawn, r)):
            found.setdefault(slot, []).append((r, position))
    return found


def guarded(tensor: Tensor, nobody: float, device: str = "cpu") -> Tensor:
    """The tensor in the middle of a larger piece of memory, contiguous as before."""
    extent = (len(tensor) + 2 * GUARD, *tensor.shape[1:])
    around = torch.full(extent, nobody, dtype=tensor.dtype)
    around[GUARD : GUARD + len(tensor)] = tensor
    return around.to(device)[GUARD : GUARD + len(tensor)]


def arguments(
    kind: str, drawn: Drawn, *, nobody: float = math.nan, winner: int = 0, unused: int = -1
) -> dict[str, Tensor]:
    """The tensors of a call, by name, in positional order; `scale` comes after them.

    kind: "mask", "varlen" or "paged". winner: the request whose keys and values are in shared blocks, should
    the requests differ there. unused: what unused entries of the block table hold.
    """
    batch, requests = drawn.batch, drawn.requests
    q = torch.cat([one.q for one in requests])  # (T, H, D)
    starts = _offsets(q_len for q_len, _ in batch.rows)  # (R+1,)
    if kind == "paged":
        cache = {
            name: _fill_cache(drawn, [getattr(one, name[0]) for one in requests], nobody, winner)
            for name in ("k_cache", "v_cache")
        }
        index = {
            "block_table": _block_table(drawn, unused),
            "query_start_loc": starts,
            "seq_lens": torch.tensor([seq_len for _, seq_len in batch.rows], dtype=torch.int32),
        }
    else:
        cache = {"k": torch.cat([one.k for one in requests]), "v": torch.cat([one.v for one in requests])}
        kv_starts = _offsets(seq_len for _, seq_len in batch.rows)
        varlen = {"cu_seqlens_q": starts, "cu_seqlens_k": kv_starts}
        index = {"mask": definition_of_mask(batch.rows)} if kind == "mask" else varlen
    floats = {name: guarded(tensor, nobody, batch.device) for name, tensor in ({"q": q} | cache).items()}
    return floats | {name: tensor.to(batch.device) for name, tensor in index.items()}


def definition_of_mask(rows: Sequence[tuple[int, int]]) -> Tensor:
    """(T, S) bool: M[i, j] is True where key j is of query i's request and at a position that i sees."""
    mask = torch.zeros(sum(q for q, _ in rows), sum(k for _, k in rows), dtype=torch.bool)
    row = column = 0
    for q_len, seq_len in rows:
        for query in range(q_len):
            for position in visible_keys(q_len, seq_len, query):
                mask[row + query, column + position] = True
        row, column = row + q_len, column + seq_len
    return mask


def _offsets(lengths: Iterable[int]) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def _block_table(drawn: Drawn, unused: int) -> Tensor:
    layout = drawn.batch.layout or KVLayout()
    used = [-(-seq_len // layout.block_size) for _, seq_len in drawn.batch.rows]
    table = torch.full((len(used), max(1, *used) + layout.spare_columns), unused, dtype=torch.int32)
    for r, blocks in enumerate(used):
        table[r, :blocks] = torch.tensor(drawn.tables[r][:blocks], dtype=torch.int32)
    return table


def _fill_cache(drawn: Drawn, rows: list[Tensor], nobody: float, winner: int) -> Tensor:
    """(NB, BS, KH, D) with each request's rows (seq_len, KH, D) in its slots."""
    batch, layout = drawn.batch, drawn.batch.layout or KVLayout()
    slots = drawn.num_blocks * layout.block_size
    flat = torch.full((slots, batch.kv_heads, batch.head_dim), nobody, dtype=torch_dtype(batch.dtype))
    for r in sorted(range(len(rows)), key=lambda r: r == winner):
        flat[torch.tensor(slots_of(drawn, r), dtype=torch.long)] = rows[r]
    return flat.view(drawn.num_blocks, layout.block_size, batch.kv_heads, batch.head_dim)
