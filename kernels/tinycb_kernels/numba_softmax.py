"""The arithmetic that the CPU loops share: rows of queries against one tile of keys, online.

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

It does not know where keys are stored: numba_tiles.py brings them. Read next: numba_varlen.py.
"""

import numpy as np
from numba import njit
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
        for j in range(
            count, TILE
        ):  # weights of 0, so that the next loops have one length and are vectorised
            scores[j] = MINUS_INFINITY
        for j in range(TILE):
            scores[j] = exp(scores[j] - new_largest)
        shrink = exp(largest[row] - new_largest)  # 0 for a row's first tile: largest is -inf
        largest[row] = new_largest
        total[row] = total[row] * shrink + sum_of(scores)
        for d in range(acc.shape[1]):
            acc[row, d] *= shrink
        add_values(acc, row, scores, values, count)
