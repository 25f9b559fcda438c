"""Attention of a single query, which reads keys and values where they lie.

A request that decodes has one query, and few rows to a KV head. To copy its keys first, as for many queries
(numba_attention.py), would take as long as to multiply them; and reading and multiplying would take turns,
where they can go on side by side. So the micro-kernel is pointed at the cache itself, ROWS keys at a time.
The numbers are added in the same order, so that a row gets the bits that it gets there.

    queries (D, LANES)     k   [ block 7 ]  ROWS keys · queries ─▶ scores ─▶ weights ─▶ · ROWS values ─▶ acc
                               [ block 2 ]  …
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .numba_softmax import TILE, weigh_narrow
from .numba_tile import LANES, NARROW, ROWS, tile_product

Array = NDArray[np.float32]


@njit(error_model="numpy")
def can_read_in_place(block_size: int, dims: int, k_stride: int, v_stride: int) -> bool:
    """Whether ROWS keys are evenly spaced in a block, and a key's numbers whole vectors. Given: float32."""
    return block_size % ROWS == 0 and dims % LANES == 0 and k_stride == v_stride == 1


@njit(error_model="numpy")
def attend_in_place(
    visible: int,
    k: Array,
    v: Array,
    k_strides: tuple[int, ...],
    v_strides: tuple[int, ...],
    block_size: int,
    blocks: NDArray[np.int32],
    kv_head: int,
    next_blocks: NDArray[np.int32],
    next_head: int,
    queries: Array,
    scores: Array,
    seen: NDArray[np.int64],
    largest: Array,
    total: Array,
    shrink: Array,
    base: Array,
    acc: Array,
) -> None:
    """The rows of one query, at most NARROW, take in the first `visible` keys of their request.

    k, v flat, (NB, BS, KH, D) by their strides · blocks (MB,) · next_blocks, next_head: whose keys are wanted
    after these · queries (D, LANES) · scores (TILE, LANES),
    seen, shrink, base (LANES,) scratch · largest, total (LANES,), acc (rows or more, D) brought up to date.
    """
    dims = queries.shape[0]
    for start in range(0, visible, TILE):
        end = min(start + TILE, visible)
        seen[:NARROW] = end - start
        for j in range(start, end, ROWS):
            at = place(blocks, j, block_size, k_strides, kv_head)
            following = place(next_blocks, 0, block_size, k_strides, next_head)
            if j + ROWS < visible:
                following = place(blocks, j + ROWS, block_size, k_strides, kv_head)
            soon = (k, following, k_strides[1], LANES)
            tile_product(
                ROWS, NARROW, False, dims, k, at, k_strides[1], 1, queries, 0, LANES,
                scores, (j - start) * LANES, LANES, soon, None,
            )  # fmt: skip
        weigh_narrow(scores, end - start, seen, largest, total, shrink, base)
        for m in range(NARROW):
            for d in range(dims):
                acc[m, d] *= shrink[m]
        for j in range(start, end, ROWS):
            at = place(blocks, j, block_size, v_strides, kv_head)
            following = place(next_blocks, 0, block_size, v_strides, next_head)
            if j + ROWS < visible:
                following = place(blocks, j + ROWS, block_size, v_strides, kv_head)
            for d in range(0, dims, LANES):
                soon = (v, following + d, v_strides[1], LANES)
                tile_product(
                    NARROW, LANES, True, min(ROWS, end - j), scores, (j - start) * LANES, 1, LANES,
                    v, at + d, v_strides[1], acc, d, dims, soon, None,
                )  # fmt: skip


@njit(error_model="numpy")
def place(
    blocks: NDArray[np.int32], position: int, block_size: int, strides: tuple[int, ...], kv_head: int
) -> np.int64:
    """Where a position's keys or values begin in the cache."""
    block = np.int64(blocks[position // block_size])
    return block * strides[0] + position % block_size * strides[1] + kv_head * strides[2]
