"""Paths 2 and 3 on a CPU: attention as compiled parallel loops, over packed or paged keys.

The nest of loops, at the end, is the textbook's: for each tile of queries and each KV head, for each tile of
keys, for each ROWS rows one step of the online softmax. Threads take turns at the (query tile, KV head)
pairs. Both products, queries times keys and weights times values, are the micro-kernel of numba_tile.py.

Softmax needs the largest score before it can weigh anything, and attention walks over the keys once. The
online softmax (Milakov and Gimelshein, 2018) keeps three running values for each row, valid for the keys seen
so far, and corrects them when a larger score turns up:

    largest    the largest score
    total      sum of exp(score - largest)
    acc        sum of exp(score - largest) * value, a (D,) vector; the answer is acc / total

One property matters here more than speed: a row's result has the same bits in any batch. It depends on the
row's own query and its own keys in logical order, and on nothing else. Tiles of keys begin at positions 0,
TILE, 2 * TILE, ... of the request, whatever the block size, the chunk and the neighbours are; every sum is
one chain, in an order that follows from how many keys the row may see; and the values that a row may not see
are left out of its chain, not multiplied by 0, for 0 times NaN is NaN.

It checks nothing: that is for varlen.py and paged.py. Read next: numba_calls.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange
from numba.extending import overload
from numpy.typing import NDArray

from .numba_tile import HALF, LANES, QUARTER, ROWS, exp, tile_product, tile_rows

TILE_VERSION = "c90f0fb1"
TILE = 64  # keys between two corrections of the running values; K and V of a tile fit in a core's L1 cache
MOST_ROWS = 96  # rows, (query, head) pairs, that share a tile of keys once it is laid out

Array = NDArray[np.float32]

MINUS_INFINITY = np.float32(-np.inf)


@njit(error_model="numpy")
def score_tile(
    rows: int, dims: int, queries: Array, at: int, keys: Array, key_count: int, scores: Array
) -> None:
    """scores[m, j] = queries[m] · keys[j], LANES keys at a time. queries (D, rows) · keys (D, TILE)."""
    for j in range(0, key_count, LANES):
        if rows == ROWS:
            tile_product(ROWS, False, dims, queries, at, 1, ROWS, keys, j, TILE, scores, j, TILE)
        elif rows == HALF:
            tile_product(HALF, False, dims, queries, at, 1, HALF, keys, j, TILE, scores, j, TILE)
        else:
            tile_product(QUARTER, False, dims, queries, at, 1, QUARTER, keys, j, TILE, scores, j, TILE)


@njit(error_model="numpy")
def add_values(
    rows: int, count: int, scores: Array, row: int, values: Array, width: int, acc: Array, at: int
) -> None:
    """acc[m] += weights[m, :count] @ values[:count] for `rows` rows. weights are in scores from `row` on."""
    x = row * TILE
    for d in range(0, width, LANES):
        if rows == ROWS:
            tile_product(ROWS, True, count, scores, x, TILE, 1, values, d, width, acc, at + d, width)
        elif rows == HALF:
            tile_product(HALF, True, count, scores, x, TILE, 1, values, d, width, acc, at + d, width)
        elif rows == QUARTER:
            tile_product(QUARTER, True, count, scores, x, TILE, 1, values, d, width, acc, at + d, width)
        else:
            tile_product(1, True, count, scores, x, TILE, 1, values, d, width, acc, at + d, width)


@njit(error_model="numpy")
def weigh(
    scores: Array, row: int, count: int, scale: np.float32, largest: np.float32
) -> tuple[np.float32, np.float32]:
    """A row's first `count` scores become weights, the rest 0. Returns the new largest and the sum."""
    start = row * TILE
    for j in range(count):
        scores[start + j] *= scale
        if scores[start + j] > largest:
            largest = scores[start + j]
    for j in range(count, TILE):
        scores[start + j] = MINUS_INFINITY
    for j in range(TILE):
        scores[start + j] = exp(scores[start + j] - largest)
    lanes = np.zeros(16, np.float32)  # sixteen sums side by side fill a vector, and fix the order
    for j in range(0, TILE, 16):
        for lane in range(16):
            lanes[lane] += scores[start + j + lane]
    total = np.float32(0)
    for lane in range(16):
        total += lanes[lane]
    return largest, total


@njit(error_model="numpy")
def attend_rows(
    tile: int,
    all_rows: int,
    group: int,
    dims: int,
    width: int,
    visible: int,
    scale: np.float32,
    queries: Array,
    keys: Array,
    values: Array,
    scores: Array,
    largest: Array,
    total: Array,
    acc: Array,
) -> None:
    """Row tile number `tile` takes in the keys of one key tile that it may see: `visible` of them for the
    first query's rows, one more for each later query's. `group` rows, one for each query head, belong to a
    query. width: D rounded up to whole vectors.

    queries (D, ROWS) a row tile · keys (D, TILE) · values (TILE, width) · scores (ROWS, TILE) scratch ·
    largest, total (all_rows,) · acc (all_rows, width); all flat.
    """
    first, height = tile * ROWS, tile_rows(all_rows, tile)
    rows = min(ROWS, all_rows - first)
    least, most = visible + first // group, visible + (first + rows - 1) // group
    if most <= 0:
        return
    score_tile(height, dims, queries, first * dims, keys, min(TILE, most), scores)
    for m in range(rows):
        row, count = first + m, min(TILE, visible + (first + m) // group)
        if count > 0:
            new_largest, weight = weigh(scores, m, count, scale, largest[row])
            shrink = exp(largest[row] - new_largest)  # 0 for a row's first tile: largest is -inf
            largest[row] = new_largest
            total[row] = total[row] * shrink + weight
            for d in range(row * width, row * width + width):
                acc[d] *= shrink
    if min(TILE, least) == min(TILE, most):
        add_values(height, min(TILE, most), scores, 0, values, width, acc, first * width)
        return
    for m in range(rows):
        add_values(
            1, min(TILE, visible + (first + m) // group), scores, m, values, width, acc, (first + m) * width
        )


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
def load_queries(queries: Array, q: Array, first_token: int, rows: int, first_head: int, group: int) -> None:
    """Lay out rows for the micro-kernel: (token, head) pairs, all heads of a group for one token first."""
    dims = q.shape[2]
    for tile in range((rows + ROWS - 1) // ROWS):
        height, start = tile_rows(rows, tile), tile * ROWS * dims
        for m in range(height):
            row = tile * ROWS + m
            for d in range(dims):
                value = np.float32(0)
                if row < rows:
                    value = q[first_token + row // group, first_head + row % group, d]
                queries[start + d * height + m] = value


@njit(error_model="numpy")
def store_result(
    out: Array, acc: Array, width: int, total: Array, first_token: int, rows: int, first_head: int, group: int
) -> None:
    """acc / total to where the rows came from; 0 for a row that saw no key."""
    for row in range(rows):
        for d in range(out.shape[2]):
            weighted = acc[row * width + d] / total[row] if total[row] != 0 else np.float32(0)
            out[first_token + row // group, first_head + row % group, d] = weighted


@njit(error_model="numpy")
def load_row(
    tile: Array, start: int, step: int, source: NDArray[Any], offset: np.int64, stride: int, dims: int
) -> None:
    """tile[start], tile[start + step], … = D numbers from `source[offset]` on, `stride` apart, as float32.

    Copying first makes the arithmetic the same compiled code for every dtype and every stride, and nothing
    but these few rows is ever converted.
    """
    for d in range(dims):
        tile[start + d * step] = widen(
            source[np.uintp(offset + d * stride)]
        )  # unsigned: counts from the start


def widen(stored: Any) -> Any:
    """A stored number as float32; in compiled code only, as the overload below.

    16-bit floats arrive as integers, for Numba has none on a CPU: bfloat16 as uint16, float16 as int16.
    """
    raise NotImplementedError("widen is for compiled code")


@overload(widen)
def widen_overload(stored: Any) -> Callable[[Any], Any] | None:
    def float32(stored: Any) -> Any:
        return stored

    def bfloat16(stored: Any) -> Any:  # the upper half of a float32
        return np.uint32(np.uint32(stored) << np.uint32(16)).view(np.float32)

    def float16(stored: Any) -> Any:
        return float16_value(np.uint32(stored))

    return {"float32": float32, "uint16": bfloat16, "int16": float16}.get(str(stored))


@njit(error_model="numpy")
def float16_value(bits: np.uint32) -> np.float32:
    """The float16 with these bits. Its exponents count from -15 and float32's from -127: hence 2**112."""
    magnitude = np.uint32((bits & np.uint32(0x7FFF)) << np.uint32(13))
    finite = magnitude.view(np.float32) * np.float32(2.0**112)
    infinite_or_nan = np.uint32(magnitude | np.uint32(0x7F800000)).view(np.float32)
    value = finite if magnitude < np.uint32(0x0F800000) else infinite_or_nan
    return -value if bits & np.uint32(0x8000) else value


@njit(parallel=True, cache=True, error_model="numpy")
def attention_loops(
    workers: int,
    q: Array,
    k: NDArray[Any],
    v: NDArray[Any],
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
    """q, out (T, H, D) contiguous · k, v flat, (NB, BS, KH, D) by their strides · block_table (R, MB) ·
    kv_starts (R,) where in its blocks a request begins · q_starts (R+1,) · seq_lens (R,)."""
    dims, group, requests = q.shape[2], q.shape[1] // kv_heads, len(seq_lens)
    width = (dims + LANES - 1) // LANES * LANES
    tile_size = max(1, MOST_ROWS // group)  # queries
    room = (tile_size * group + ROWS - 1) // ROWS * ROWS  # rows
    tiles = q_starts[requests] // tile_size + requests
    for worker in prange(workers):
        queries, acc = np.empty(room * dims, np.float32), np.empty(room * width, np.float32)
        largest, total = np.empty(room, np.float32), np.empty(room, np.float32)
        keys, values = np.zeros(dims * TILE, np.float32), np.zeros(TILE * width, np.float32)
        scores = np.zeros(ROWS * TILE, np.float32)
        for item in range(worker, tiles * kv_heads, workers):
            tile, kv_head = item // kv_heads, item % kv_heads
            r = find_request(q_starts, tile, tile_size)
            q_len, seq_len = q_starts[r + 1] - q_starts[r], seq_lens[r]
            first = (
                tile - q_starts[r] // tile_size - r
            ) * tile_size  # the tile's first query, in its request
            rows = min(tile_size, q_len - first) * group
            if rows <= 0:
                continue
            load_queries(queries, q, q_starts[r] + first, rows, kv_head * group, group)
            largest[:], total[:], acc[:] = MINUS_INFINITY, 0, 0
            visible = seq_len - q_len + first + 1  # keys of the first query; each later query sees one more
            kv_end = visible + rows // group - 1
            for start in range(0, kv_end, TILE):
                for j in range(min(TILE, kv_end - start)):
                    position = np.int64(kv_starts[r]) + start + j
                    block = np.int64(block_table[r, position // block_size])
                    offset = position % block_size
                    k_offset = block * k_strides[0] + offset * k_strides[1] + kv_head * k_strides[2]
                    v_offset = block * v_strides[0] + offset * v_strides[1] + kv_head * v_strides[2]
                    load_row(keys, j, TILE, k, k_offset, k_strides[3], dims)
                    load_row(values, j * width, 1, v, v_offset, v_strides[3], dims)
                for row_tile in range((rows + ROWS - 1) // ROWS):
                    attend_rows(
                        row_tile, rows, group, dims, width, visible - start, scale,
                        queries, keys, values, scores, largest, total, acc,
                    )  # fmt: skip
            store_result(out, acc, width, total, q_starts[r] + first, rows, kv_head * group, group)
