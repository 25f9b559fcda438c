"""Paths 2 and 3 on a CPU: attention as compiled parallel loops, over packed or paged keys.

The nest of loops, at the end, is the textbook's: for each tile of queries and each KV head, for each tile of
keys, for each LANES rows one step of the online softmax (numba_softmax.py). Which thread does which of the
(query tile, KV head) pairs is laid out before (numba_items.py). Both products, queries times keys and weights
times values, are the micro-kernel of numba_tile.py. A single query takes a shorter way (numba_decode.py).

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
from .numba_items import next_request, share_out
from .numba_softmax import MINUS_INFINITY, TILE, weigh_narrow, weigh_wide
from .numba_tile import HALF, NARROW, QUARTER, ROWS, copy_lanes, copy_number, scratch, tile_product
from .numba_vectors import LANES

PARTS_VERSION = "db3dda0a"  # see renew.py
ROW_TILES = 6  # tiles of rows that share a tile of keys once it is loaded

Array = NDArray[np.float32]


@njit(error_model="numpy")
def score(rows: int, queries: Array, keys: Array, count: int, scores: Array) -> None:
    """scores[j, m] = queries[m] · keys[j]. Here the keys are the micro-kernel's rows, and the rows of a tile
    its columns, LANES or NARROW of them: so the softmax that follows works on whole vectors.

    queries (D, LANES) · keys (TILE, width) · scores (TILE, LANES or NARROW), flat; count: of keys.
    """
    dims, width = queries.shape[0], keys.shape[1]
    for j in range(0, count, ROWS):
        if rows > NARROW:
            tile_product(
                ROWS, LANES, False, dims, keys, j * width, width, 1, queries, 0, LANES,
                scores, j * LANES, LANES, None, None,
            )  # fmt: skip
        else:
            tile_product(
                ROWS, NARROW, False, dims, keys, j * width, width, 1, queries, 0, LANES,
                scores, j * NARROW, NARROW, None, None,
            )  # fmt: skip


@njit(error_model="numpy")
def add_values(weights: Array, rows: int, seen: NDArray[np.int64], values: Array, acc: Array) -> None:
    """acc[m] goes on with weights[j, m] * values[j], for the keys j that row m may see, in order.

    First the keys that all of the `rows` may see, together; then each row's own last few.
    """
    width, together, lanes = values.shape[1], max(0, seen[0]), LANES if rows > NARROW else NARROW
    for d in range(0, width, LANES):
        if rows > HALF:
            tile_product(
                ROWS, LANES, True, together, weights, 0, 1, lanes, values, d, width, acc, d, width,
                None, None,
            )  # fmt: skip
        elif rows > QUARTER:
            tile_product(
                HALF, LANES, True, together, weights, 0, 1, lanes, values, d, width, acc, d, width,
                None, None,
            )  # fmt: skip
        else:
            tile_product(
                QUARTER, LANES, True, together, weights, 0, 1, lanes, values, d, width,
                acc, d, width, None, None,
            )  # fmt: skip
    for m in range(rows):
        own, x = seen[m] - together, together * lanes + m
        if own > 0:
            for d in range(0, width, LANES):
                w, out = together * width + d, m * width + d
                tile_product(
                    1, LANES, True, own, weights, x, 1, lanes, values, w, width, acc, out, width, None, None
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
    bases: Array,
    acc: Array,
) -> None:
    """Rows `before` to `before + rows` of an item take in the keys of one tile that they may see: `visible`
    of them for the item's first query, one more for each later one. `group` rows belong to a query.

    queries (D, LANES) · keys, values (TILE, width) · acc (LANES, width), largest, total (LANES,)
    of these rows · scores (TILE * LANES,), seen, shrink, bases (LANES,) are scratch.
    """
    first = visible + before // group
    seen[:] = TILE
    if first < TILE:
        for m in range(LANES):
            seen[m] = min(TILE, first + (before % group + m) // group)
    count = seen[rows - 1]
    if count <= 0:
        return
    score(rows, queries, keys, count, scores)
    if rows > NARROW:
        weigh_wide(scores, count, seen, largest, total, shrink, bases)
    else:
        weigh_narrow(scores, count, seen, largest, total, shrink, bases)
    for m in range(rows):
        for d in range(acc.shape[1]):
            acc[m, d] *= shrink[m]
    add_values(scores, rows, seen, values, acc)


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
        sums = acc[row // LANES, row % LANES]
        for d in range(len(target)):
            target[d] = sums[d] * share


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
    query may read where they lie, if the layout allows it: then kv_starts are all 0 · block_table (R, MB) ·
    kv_starts (R,) where in its blocks a request begins · q_starts (R+1,) · seq_lens (R,)."""
    dims, group = q.shape[2], q.shape[1] // kv_heads
    width = (dims + LANES - 1) // LANES * LANES
    tile_size = max(1, ROW_TILES * LANES // group)  # queries of an item
    row_tiles = (tile_size * group + LANES - 1) // LANES
    in_place = in_place and can_read_in_place(block_size, dims, group, k_strides[3], v_strides[3])
    items = share_out(workers, tile_size, kv_heads, in_place, q_starts, seq_lens)
    tiles = max(row_tiles, kv_heads) if in_place else row_tiles
    for worker in prange(workers):
        queries = scratch(tiles * dims, LANES).reshape(tiles, dims, LANES)
        keys, values, scores = scratch(TILE, width), scratch(TILE, width), scratch(tiles, TILE * LANES)
        acc = scratch(tiles * LANES, width).reshape(tiles, LANES, width)
        largest, total = scratch(tiles, LANES), scratch(tiles, LANES)
        queries[:], keys[:], values[:] = 0, 0, 0
        seen, (shrink, bases) = np.empty(LANES, np.int64), (scratch(1, LANES)[0], scratch(1, LANES)[0])
        for item in range(len(items)):
            r, first, kv_head, heads, owner = items[item]
            if owner != worker:
                continue
            q_len, seq_len, first_token = q_starts[r + 1] - q_starts[r], seq_lens[r], q_starts[r] + first
            rows = min(tile_size, q_len - first) * group
            visible = seq_len - q_len + first + 1  # keys of the first query; each later query sees one more
            if in_place and rows == group:
                largest[:heads], total[:heads], acc[:heads] = MINUS_INFINITY, 0, 0
                for h in range(heads):
                    load_queries(queries[h:], q, scale, first_token, rows, (kv_head + h) * group, group)
                attend_in_place(
                    visible, k, v, k_strides, v_strides, block_size, block_table[r],
                    block_table[next_request(items, item)], kv_head, queries[:heads], scores, seen,
                    largest, total, shrink, bases, acc,
                )  # fmt: skip
                for h in range(heads):
                    store_result(out, acc[h:], total[h:], first_token, rows, (kv_head + h) * group, group)
                continue
            in_use = (rows + LANES - 1) // LANES  # row tiles
            largest[:in_use], total[:in_use], acc[:in_use] = MINUS_INFINITY, 0, 0
            load_queries(queries, q, scale, first_token, rows, kv_head * group, group)
            kv_end = visible + rows // group - 1
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
                        keys, values, scores[0], seen, largest[t], total[t], shrink, bases, acc[t],
                    )  # fmt: skip
            store_result(out, acc, total, first_token, rows, kv_head * group, group)
