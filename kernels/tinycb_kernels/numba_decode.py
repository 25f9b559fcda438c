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
def can_read_in_place(block_size: int, dims: int, group: int, k_stride: int, v_stride: int) -> bool:
    """Whether ROWS keys are evenly spaced in a block, a key is whole vectors, and a query's rows are few."""
    return block_size % ROWS == 0 and dims % LANES == 0 and group <= NARROW and k_stride == v_stride == 1


@njit(error_model="numpy")
def places(
    blocks: NDArray[np.int32],
    kv_head: int,
    position: int,
    visible: int,
    next_blocks: NDArray[np.int32],
    next_head: int,
    block_size: int,
    strides: tuple[int, ...],
) -> tuple[np.int64, np.int64]:
    """Where the keys or values of a position begin in the cache, and those of the ROWS that come after it,
    which past the last visible one are the next request's."""
    block, offset = np.int64(blocks[position // block_size]), position % block_size
    at = block * strides[0] + offset * strides[1] + kv_head * strides[2]
    position += ROWS
    if position >= visible:
        blocks, kv_head, position = next_blocks, next_head, 0
    block, offset = np.int64(blocks[position // block_size]), position % block_size
    return at, block * strides[0] + offset * strides[1] + kv_head * strides[2]


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
    after these · queries (D, LANES) · scores (TILE, LANES), seen, shrink, base (LANES,) scratch · largest,
    total (LANES,), acc (rows or more, D) brought up to date.
    """
    dims = queries.shape[0]
    for start in range(0, visible, TILE):
        end = min(start + TILE, visible)
        seen[:NARROW] = end - start
        for j in range(start, end, ROWS):
            at, after = places(blocks, kv_head, j, visible, next_blocks, next_head, block_size, k_strides)
            tile_product(
                ROWS, NARROW, False, dims, k, at, k_strides[1], 1, queries, 0, LANES,
                scores, (j - start) * LANES, LANES, (k, after, LANES, k_strides[1]), None,
            )  # fmt: skip
        weigh_narrow(scores, end - start, seen, largest, total, shrink, base)
        for m in range(NARROW):
            for d in range(dims):
                acc[m, d] *= shrink[m]
        for j in range(start, end, ROWS):
            at, after = places(blocks, kv_head, j, visible, next_blocks, next_head, block_size, v_strides)
            for d in range(0, dims, LANES):
                tile_product(
                    NARROW, LANES, True, min(ROWS, end - j), scores, (j - start) * LANES, 1, LANES,
                    v, at + d, v_strides[1], acc, d, dims, (v, after + d, LANES, v_strides[1]), None,
                )  # fmt: skip
