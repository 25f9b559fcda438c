"""Paths 2 and 3 on a CPU: attention as compiled parallel loops, over packed or paged keys.

The nest of loops, at the end, is the textbook's: for each tile of queries and each KV head, for each tile of
keys, for each row one step of the online softmax. Threads take turns at the (query tile, KV head) pairs.

Softmax needs the largest score before it can weigh anything, and attention walks over the keys once. The
online softmax (Milakov and Gimelshein, 2018) keeps three running values for each row, valid for the keys seen
so far, and corrects them when a larger score turns up:

    largest    the largest score
    total      sum of exp(score - largest)
    acc        sum of exp(score - largest) * value, a (D,) vector; the answer is acc / total

One property matters here more than speed: a row's result has the same bits in any batch. It depends on the
row's own query and its own keys in logical order, and on nothing else. Tiles of keys begin at positions 0,
TILE, 2 * TILE, ... of the request, whatever the block size, the chunk and the neighbours are; the lengths of
all loops follow from how many keys the row may see; and a row never touches a key that it may not see, so
there is nothing to mask.

Everything is in one file because Numba keeps compiled code on disk until the file of the outermost function
changes: a loop edited in another file would go on running as it was. It checks nothing: that is for varlen.py
and paged.py. Read next: numba_calls.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange
from numba.extending import overload
from numpy.typing import NDArray

TILE = 64  # keys between two corrections of the running values; K and V of a tile fit in a core's L1 cache

Array = NDArray[np.float32]

# `contract` lets a * b + c be one instruction with one rounding. `reassoc` lets a sum be split over the lanes
# of a vector, which only `dot` and `sum_of` need. Neither assumes away NaN, as fastmath=True would.
FUSED = {"contract"}
FUSED_SUM = {"contract", "reassoc", "nsz"}

MINUS_INFINITY = np.float32(-np.inf)
LOG2_E = np.float32(1.4426950408889634)
LN_2_HIGH = np.float32(0.693359375)  # few bits, so that n * LN_2_HIGH is exact
LN_2_LOW = np.float32(-2.1219444005469057e-4)  # the rest of ln 2
LOWEST = np.float32(-87.0)  # exp of less is under 2e-38, and 2**n would no longer be a normal float32


@njit(fastmath=FUSED)
def exp(x: np.float32) -> np.float32:
    """e**x for x <= 0, within about one unit in the last place; 0 for x < -87. NaN stays NaN.

    Written out so that the compiler can vectorise it: calls into the maths library take one value each.
    e**x = 2**n * e**r with n whole and |r| <= ln(2) / 2, where seven terms of e**r's series are enough.
    """
    n = np.floor(x * LOG2_E + np.float32(0.5))
    r = x - n * LN_2_HIGH
    r = r - n * LN_2_LOW
    series = np.float32(1 / 5040)
    series = series * r + np.float32(1 / 720)
    series = series * r + np.float32(1 / 120)
    series = series * r + np.float32(1 / 24)
    series = series * r + np.float32(1 / 6)
    series = series * r + np.float32(1 / 2)
    series = series * r + np.float32(1)
    series = series * r + np.float32(1)
    two_to_n = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(0) if x < LOWEST else series * two_to_n


@njit(fastmath=FUSED_SUM)
def dot(queries: Array, row: int, keys: Array, j: int) -> np.float32:
    """queries[row] · keys[j]."""
    score = np.float32(0)
    for d in range(queries.shape[1]):
        score += queries[row, d] * keys[j, d]
    return score


@njit(fastmath=FUSED_SUM)
def sum_of(weights: Array) -> np.float32:
    """The sum of a tile's weights, those past the row's last key (0) included."""
    total = np.float32(0)
    for j in range(TILE):
        total += weights[j]
    return total


@njit(fastmath=FUSED)
def add_values(acc: Array, row: int, weights: Array, values: Array, count: int) -> None:
    """acc[row] += weights[:count] @ values[:count], key after key; four a pass, to load acc less often."""
    for j in range(0, count - 3, 4):
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        for d in range(acc.shape[1]):
            value = acc[row, d]
            value += w0 * values[j, d]
            value += w1 * values[j + 1, d]
            value += w2 * values[j + 2, d]
            value += w3 * values[j + 3, d]
            acc[row, d] = value
    for j in range(count // 4 * 4, count):
        for d in range(acc.shape[1]):
            acc[row, d] += weights[j] * values[j, d]


@njit(fastmath=FUSED)
def attend_tile(
    queries: Array,
    keys: Array,
    values: Array,
    rows: int,
    group: int,
    visible: int,
    scale: np.float32,
    scores: Array,
    largest: Array,
    total: Array,
    acc: Array,
) -> None:
    """Each row takes in the keys of one tile that it may see: `visible` of them for the first query's rows,
    one more for each later query's. `group` rows, one for each query head, belong to a query.

    queries, acc (rows, D) · keys, values (TILE, D) · scores (TILE,) scratch · largest, total (rows,)
    """
    for row in range(rows):
        count = min(TILE, visible + row // group)
        if count <= 0:
            continue
        new_largest = largest[row]
        for j in range(count):
            score = dot(queries, row, keys, j) * scale
            scores[j] = score
            if score > new_largest:
                new_largest = score
        # The rest get a weight of 0, so that the next two loops have one length and are vectorised.
        for j in range(count, TILE):
            scores[j] = MINUS_INFINITY
        for j in range(TILE):
            scores[j] = exp(scores[j] - new_largest)
        shrink = exp(largest[row] - new_largest)  # 0 for a row's first tile: largest is -inf
        largest[row] = new_largest
        total[row] = total[row] * shrink + sum_of(scores)
        for d in range(acc.shape[1]):
            acc[row, d] *= shrink
        add_values(acc, row, scores, values, count)


@njit(fastmath=FUSED)
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


@njit(fastmath=FUSED)
def load_queries(queries: Array, q: Array, first_token: int, rows: int, first_head: int, group: int) -> None:
    """Copy the rows of one tile: (token, head) pairs, all heads of a KV head's group for one token first."""
    for row in range(rows):
        for d in range(q.shape[2]):
            queries[row, d] = q[first_token + row // group, first_head + row % group, d]


@njit(fastmath=FUSED)
def store_result(
    out: Array, acc: Array, total: Array, first_token: int, rows: int, first_head: int, group: int
) -> None:
    """acc / total to where the rows came from; 0 for a row that saw no key."""
    for row in range(rows):
        for d in range(out.shape[2]):
            weighted = acc[row, d] / total[row] if total[row] != 0 else np.float32(0)
            out[first_token + row // group, first_head + row % group, d] = weighted


@njit(fastmath=FUSED)
def load_row(tile: Array, j: int, source: NDArray[Any], offset: np.int64, stride: int) -> None:
    """tile[j] = the D numbers from `source[offset]` on, `stride` apart, as float32.

    Copying first makes the arithmetic the same compiled code for every dtype and every stride, and nothing
    but these few rows is ever converted.
    """
    for d in range(tile.shape[1]):
        tile[j, d] = widen(source[np.uintp(offset + d * stride)])  # unsigned: no index counts from the end


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


@njit(fastmath=FUSED)
def float16_value(bits: np.uint32) -> np.float32:
    """The float16 with these bits. Its exponents count from -15 and float32's from -127: hence 2**112."""
    magnitude = np.uint32((bits & np.uint32(0x7FFF)) << np.uint32(13))
    finite = magnitude.view(np.float32) * np.float32(2.0**112)
    infinite_or_nan = np.uint32(magnitude | np.uint32(0x7F800000)).view(np.float32)
    value = finite if magnitude < np.uint32(0x0F800000) else infinite_or_nan
    return -value if bits & np.uint32(0x8000) else value


@njit(parallel=True, cache=True)
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
    dim, group, requests = q.shape[2], q.shape[1] // kv_heads, len(seq_lens)
    tile_size = max(1, 48 // group)  # queries; 48 rows are enough to make up for bringing in the keys
    tiles = q_starts[requests] // tile_size + requests
    for worker in prange(workers):
        queries = np.empty((tile_size * group, dim), np.float32)
        acc = np.empty((tile_size * group, dim), np.float32)
        largest, total = np.empty(tile_size * group, np.float32), np.empty(tile_size * group, np.float32)
        keys, values = np.empty((TILE, dim), np.float32), np.empty((TILE, dim), np.float32)
        scores = np.empty(TILE, np.float32)
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
                    load_row(keys, j, k, k_offset, k_strides[3])
                    load_row(values, j, v, v_offset, v_strides[3])
                attend_tile(
                    queries, keys, values, rows, group, visible - start, scale, scores, largest, total, acc
                )
            store_result(out, acc, total, q_starts[r] + first, rows, kv_head * group, group)
