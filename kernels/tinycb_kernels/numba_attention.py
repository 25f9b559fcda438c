"""Paths 2 and 3 on a CPU: attention as compiled parallel loops, over packed or paged keys.

The nest of loops, at the end, is the textbook's: for each tile of queries and each KV head, for each tile of
keys, for each LANES rows one step of the online softmax. Threads take turns at the (query tile, KV head)
pairs. Both products, queries times keys and weights times values, are the micro-kernel of numba_tile.py.

The softmax is the online one (numba_softmax.py). A single query takes a shorter way (numba_decode.py).

One property matters here more than speed: a row's result has the same bits in any batch. It depends on the
row's own query and its own keys in logical order, and on nothing else. Tiles of keys begin at positions 0,
TILE, 2 * TILE, ... of the request, whatever the block size, the chunk and the neighbours are; every sum has
one order, that of the keys; and the values that a row may not see are left out of its sum, not multiplied by
0, for 0 times NaN is NaN.

It checks nothing: that is for varlen.py and paged.py. Read next: numba_calls.py.
"""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .numba_decode import attend_in_place, can_read_in_place
from .numba_softmax import MINUS_INFINITY, TILE, weigh_narrow, weigh_wide
from .numba_tile import HALF, LANES, NARROW, QUARTER, ROWS, copy_lanes, copy_number, scratch, tile_product

PARTS_VERSION = "82661104"  # see renew.py
ROW_TILES = 6  # tiles of rows that share a tile of keys once it is loaded

Array = NDArray[np.float32]


@njit(error_model="numpy")
def score(rows: int, queries: Array, keys: Array, count: int, scores: Array) -> None:
    """scores[j, m] = queries[m] · keys[j]. Here the keys are the micro-kernel's rows, and the rows of a tile
    its columns, LANES or NARROW of them: so the softmax that follows works on whole vectors.

    queries (D, LANES) · keys (TILE, width) · scores (TILE, LANES); count: keys, rounded up to whole tiles.
    """
    dims, width = queries.shape[0], keys.shape[1]
    for j in range(0, count, ROWS):
        x, at = j * width, j * LANES
        if rows > NARROW:
            tile_product(
                ROWS, LANES, False, dims, keys, x, width, 1, queries, 0, LANES, scores, at, LANES, None, None
            )  # fmt: skip
        else:
            tile_product(
                ROWS, NARROW, False, dims, keys, x, width, 1, queries, 0, LANES, scores, at, LANES, None, None
            )  # fmt: skip


@njit(error_model="numpy")
def add_values(scores: Array, rows: int, seen: NDArray[np.int64], values: Array, acc: Array, at: int) -> None:
    """acc[m] goes on with weights[m, j] * values[j], for the keys j that row m may see, in order.

    First the keys that all of the `rows` may see, together; then each row's own last few. at: of row 0.
    """
    width, together = values.shape[1], max(0, seen[0])
    for d in range(0, width, LANES):
        if rows > HALF:
            tile_product(
                ROWS, LANES, True, together, scores, 0, 1, LANES, values, d, width, acc, at + d, width,
                None, None,
            )  # fmt: skip
        elif rows > QUARTER:
            tile_product(
                HALF, LANES, True, together, scores, 0, 1, LANES, values, d, width, acc, at + d, width,
                None, None,
            )  # fmt: skip
        else:
            tile_product(
                QUARTER, LANES, True, together, scores, 0, 1, LANES, values, d, width,
                acc, at + d, width, None, None,
            )  # fmt: skip
    for m in range(rows):
        own, x = seen[m] - together, together * LANES + m
        if own > 0:
            for d in range(0, width, LANES):
                w, out = together * width + d, at + m * width + d
                tile_product(
                    1, LANES, True, own, scores, x, 1, LANES, values, w, width, acc, out, width, None, None
                )  # fmt: skip


@njit(error_model="numpy")
def attend(
    rows: int,
    group: int,
    before: int,
    visible: int,
    queries: Array,
    keys: Array,
    values: Array,
    scores: Array,
    seen: NDArray[np.int64],
    largest: Array,
    total: Array,
    shrink: Array,
    base: Array,
    acc: Array,
) -> None:
    """Rows `before` to `before + rows` of an item take in the keys of one tile that they may see: `visible`
    of them for the item's first query, one more for each later one. `group` rows belong to a query.

    queries (D, LANES) · keys, values (TILE, width) · acc (all rows of the item, width) · largest, total
    (LANES,) of these rows · scores (TILE, LANES), seen, shrink, base (LANES,) are scratch.
    """
    for m in range(LANES):
        seen[m] = min(TILE, visible + (before + m) // group)
    count = seen[rows - 1]
    if count <= 0:
        return
    score(rows, queries, keys, count, scores)
    if rows > NARROW:
        weigh_wide(scores, count, seen, largest, total, shrink, base)
    else:
        weigh_narrow(scores, count, seen, largest, total, shrink, base)
    for m in range(rows):
        for d in range(acc.shape[1]):
            acc[before + m, d] *= shrink[m]
    add_values(scores, rows, seen, values, acc, before * acc.shape[1])


@njit(error_model="numpy")
def find_request(starts: NDArray[np.int32], tile: int, tile_size: int) -> int:
    """The request whose queries are in tile number `tile`, by binary search in the offsets.

    Every request's queries are cut into tiles of its own, so that no tile straddles two requests. Its first
    tile has the number starts[r] // tile_size + r; that leaves each request at least as many numbers as it
    needs, and the numbers that it does not need hold no queries.

        tile_size 4, starts [0, 3, 9, 10]    r=0: tile 0    r=1: tiles 1, 2    r=2: tile 4    (3 is empty)
    """
    low, high = 0, len(starts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] // tile_size + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@njit(error_model="numpy")
def load_queries(
    queries: Array, q: Array, scale: np.float32, first_token: int, rows: int, first_head: int, group: int
) -> None:
    """Rows into queries (row tiles, D, LANES), scaled: (token, head) pairs, a token's heads side by side."""
    for tile in range((rows + LANES - 1) // LANES):
        for m in range(min(LANES, rows - tile * LANES)):
            token, head = (tile * LANES + m) // group, (tile * LANES + m) % group
            row = q[first_token + token, first_head + head]
            for d in range(len(row)):
                queries[tile, d, m] = row[d] * scale


@njit(error_model="numpy")
def store_result(
    out: Array, acc: Array, total: Array, first_token: int, rows: int, first_head: int, group: int
) -> None:
    """acc / total to where the rows came from; 0 for a row that saw no key."""
    for row in range(rows):
        weight = total[row // LANES, row % LANES]
        share = np.float32(1) / weight if weight != 0 else np.float32(0)
        target = out[first_token + row // group, first_head + row % group]
        for d in range(len(target)):
            target[d] = acc[row, d] * share


@njit(error_model="numpy")
def load_row(tile: Array, j: int, source: NDArray[Any], offset: np.int64, stride: int, dims: int) -> None:
    """tile[j] = the D numbers from `source[offset]` on, `stride` apart, as float32.

    Copying first makes the arithmetic the same compiled code for every dtype and every stride, and nothing
    but these few rows is ever converted.
    """
    whole = dims // LANES * LANES if stride == 1 else 0
    for d in range(0, whole, LANES):
        copy_lanes(source, offset + d, tile, j * tile.shape[1] + d)
    for d in range(whole, dims):
        copy_number(source, offset + d * stride, tile, j * tile.shape[1] + d)


@njit(parallel=True, cache=True, error_model="numpy")
def attention_loops(
    workers: int,
    q: Array,
    k: NDArray[Any],
    v: NDArray[Any],
    in_place: bool,
    k_strides: tuple[int, ...],
    v_strides: tuple[int, ...],
    block_size: int,
    kv_heads: int,
    block_table: NDArray[np.int32],
    kv_starts: NDArray[np.int32],
    q_starts: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    scale: np.float32,
    out: Array,
) -> None:
    """q, out (T, H, D) contiguous · k, v flat, (NB, BS, KH, D) by their strides · in_place: whether a single
    query may read where they lie, if the layout allows it: in float32, with kv_starts all 0 · block_table
    (R, MB) · kv_starts (R,) where in its blocks a request begins · q_starts (R+1,) · seq_lens (R,)."""
    dims, group, requests = q.shape[2], q.shape[1] // kv_heads, len(seq_lens)
    width = (dims + LANES - 1) // LANES * LANES
    tile_size = max(1, ROW_TILES * LANES // group)  # queries of an item
    row_tiles = (tile_size * group + LANES - 1) // LANES
    tiles = q_starts[requests] // tile_size + requests
    in_place = in_place and can_read_in_place(block_size, dims, group, k_strides[3], v_strides[3])
    for worker in prange(workers):
        queries = scratch(row_tiles * dims, LANES).reshape(row_tiles, dims, LANES)
        keys, values, scores = scratch(TILE, width), scratch(TILE, width), scratch(TILE, LANES)
        acc, largest, total = (
            scratch(row_tiles * LANES, width),
            scratch(row_tiles, LANES),
            scratch(row_tiles, LANES),
        )
        queries[:], keys[:], values[:] = 0, 0, 0
        seen, (shrink, base) = np.empty(LANES, np.int64), (scratch(1, LANES)[0], scratch(1, LANES)[0])
        for item in range(worker, tiles * kv_heads, workers):
            tile, kv_head = item // kv_heads, item % kv_heads
            r = find_request(q_starts, tile, tile_size)
            q_len, seq_len = q_starts[r + 1] - q_starts[r], seq_lens[r]
            first = (
                tile - q_starts[r] // tile_size - r
            ) * tile_size  # the item's first query, in its request
            rows = min(tile_size, q_len - first) * group
            if rows <= 0:
                continue
            load_queries(queries, q, scale, q_starts[r] + first, rows, kv_head * group, group)
            in_use = (rows + LANES - 1) // LANES  # row tiles
            largest[:in_use], total[:in_use], acc[: in_use * LANES] = MINUS_INFINITY, 0, 0
            visible = seq_len - q_len + first + 1  # keys of the first query; each later query sees one more
            kv_end = visible + rows // group - 1
            if in_place and rows == group:
                after = min(item + workers, tiles * kv_heads - 1)  # what this thread does next
                next_r, next_head = find_request(q_starts, after // kv_heads, tile_size), after % kv_heads
                attend_in_place(
                    visible, k, v, k_strides, v_strides, block_size, block_table[r], kv_head,
                    block_table[next_r], next_head, queries[0], scores, seen, largest[0], total[0],
                    shrink, base, acc,
                )  # fmt: skip
                kv_end = 0
            for start in range(0, kv_end, TILE):
                position = np.int64(kv_starts[r]) + start
                logical = position // block_size
                offset = position % block_size
                for j in range(min(TILE, kv_end - start)):
                    block = np.int64(block_table[r, logical])
                    k_offset = block * k_strides[0] + offset * k_strides[1] + kv_head * k_strides[2]
                    v_offset = block * v_strides[0] + offset * v_strides[1] + kv_head * v_strides[2]
                    load_row(keys, j, k, k_offset, k_strides[3], dims)
                    load_row(values, j, v, v_offset, v_strides[3], dims)
                    offset += 1
                    if offset == block_size:
                        logical, offset = logical + 1, np.int64(0)
                for t in range(in_use):
                    attend(
                        min(LANES, rows - t * LANES), group, t * LANES, visible - start, queries[t],
                        keys, values, scores, seen, largest[t], total[t], shrink, base, acc,
                    )  # fmt: skip
            store_result(out, acc, total, q_starts[r] + first, rows, kv_head * group, group)
