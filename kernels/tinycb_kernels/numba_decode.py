"""Attention of a single query, which reads keys and values where they lie.

A request that decodes has one query, and few rows to a KV head. To copy its keys first, as for many queries
(numba_attention.py), would take as long as to multiply them; and reading and multiplying would take turns,
where they can go on side by side. So the micro-kernel is pointed at the cache itself, ROWS keys at a time.
The numbers are added in the same order, so that a row gets the bits that it gets there.

    queries (D, LANES)     k   [ block 7 ]  ROWS keys · queries ─▶ scores ─▶ weights ─▶ · ROWS values ─▶ acc
                               [ block 2 ]  …

Where there is enough for all threads to do, one goes through all KV heads of a request together. They lie
side by side, so that the cache is read from end to end, which is what memory is best at.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .numba_softmax import TILE, weigh_narrow
from .numba_tile import NARROW, ROWS, tile_product
from .numba_vectors import LANES

Array = NDArray[np.float32]


@njit(error_model="numpy")
def can_read_in_place(block_size: int, dims: int, group: int, k_stride: int, v_stride: int) -> bool:
    """Whether ROWS keys are evenly spaced in a block, a key is whole vectors, and a query's rows are few."""
    return block_size % ROWS == 0 and dims % LANES == 0 and group <= NARROW and k_stride == v_stride == 1


@njit(error_model="numpy")
def place(blocks: NDArray[np.int32], position: int, block_size: int, strides: tuple[int, ...]) -> np.int64:
    """Where a position's keys or values begin in the cache."""
    return np.int64(blocks[position // block_size]) * strides[0] + position % block_size * strides[1]


@njit(error_model="numpy")
def place_after(
    blocks: NDArray[np.int32],
    position: int,
    visible: int,
    next_blocks: NDArray[np.int32],
    block_size: int,
    strides: tuple[int, ...],
) -> np.int64:
    """Where the ROWS after those of a position begin; past the last, the next request's first."""
    if position + ROWS < visible:
        return place(blocks, position + ROWS, block_size, strides)
    return place(next_blocks, 0, block_size, strides)


@njit(error_model="numpy")
def spacing(heads: int, dims: int, strides: tuple[int, ...]) -> tuple[int, int, int, int]:
    """How far apart in ROWS positions the lines are that a tile_product asks for, as its `soon` has it: from
    line to line, from row to row, from head to head, from number to number of a head.

    Where the heads are all there are, the lines of ROWS positions are shared out one after the other."""
    if strides[1] == heads * dims:
        return ROWS * LANES, LANES, dims * LANES, LANES
    return LANES, strides[1], strides[2], 1


@njit(error_model="numpy")
def attend_in_place(
    visible: int,
    k: NDArray[Any],
    v: NDArray[Any],
    k_strides: tuple[int, ...],
    v_strides: tuple[int, ...],
    block_size: int,
    blocks: NDArray[np.int32],
    next_blocks: NDArray[np.int32],
    first_head: int,
    queries: Array,
    scores: Array,
    seen: NDArray[np.int64],
    largest: Array,
    total: Array,
    shrink: Array,
    bases: Array,
    acc: Array,
) -> None:
    """One query's rows, at most NARROW to each KV head from `first_head` on, take in the first `visible` keys
    of their request.

    k, v flat, (NB, BS, KH, D) by their strides · blocks (MB,) · next_blocks: of the request that comes next ·
    queries (heads, D, LANES) · scores (heads, TILE * LANES), seen, shrink, bases (LANES,) scratch · largest,
    total (heads, LANES), acc (heads, LANES, D) brought up to date.
    """
    heads, dims = queries.shape[:2]
    k_line, k_row, k_head, _ = spacing(heads, dims, k_strides)
    v_line, v_row, v_head, v_number = spacing(heads, dims, v_strides)
    k_first, v_first = first_head * k_strides[2], first_head * v_strides[2]
    for start in range(0, visible, TILE):
        end = min(start + TILE, visible)
        seen[:NARROW] = end - start
        for j in range(start, end, ROWS):
            at = place(blocks, j, block_size, k_strides) + k_first
            soon = place_after(blocks, j, visible, next_blocks, block_size, k_strides) + k_first
            for h in range(heads):
                tile_product(
                    ROWS, NARROW, False, dims, k, at + h * k_strides[2], k_strides[1], 1,
                    queries[h], 0, LANES, scores[h], (j - start) * NARROW, NARROW,
                    (k, soon + h * k_head, k_line, k_row), None,
                )  # fmt: skip
        for h in range(heads):
            weigh_narrow(scores[h], end - start, seen, largest[h], total[h], shrink, bases)
            for m in range(NARROW):
                for d in range(dims):
                    acc[h, m, d] *= shrink[m]
        for j in range(start, end, ROWS):
            at = place(blocks, j, block_size, v_strides) + v_first
            soon = place_after(blocks, j, visible, next_blocks, block_size, v_strides) + v_first
            for h in range(heads):
                for d in range(0, dims, LANES):
                    tile_product(
                        NARROW, LANES, True, min(ROWS, end - j), scores[h], (j - start) * NARROW, 1, NARROW,
                        v, at + h * v_strides[2] + d, v_strides[1], acc[h], d, dims,
                        (v, soon + h * v_head + d * v_number, v_line, v_row), None,
                    )  # fmt: skip
