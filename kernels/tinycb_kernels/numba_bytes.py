"""A weight in a third of its memory and still the same weight, where it was made from small integers.

Files of quantised models keep runs of 32 numbers as integers of 4 to 8 bits with a scale, and some with a
smallest value (GGUF: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0). Read as float32 they fill up to seven times the memory,
and where few rows are multiplied, to bring a weight from memory is what takes the time. The integers can be
found again:

    w        -0.31  0.02  0.17 …  (32 of one output)      offset = the smallest
    byte       0     9     13  …                           scale  = (largest - smallest) / 15, for example

Nothing is rounded away: each number is worked out again, byte * scale + offset in one rounding, and if a
single one differs in a single bit, the whole weight stays as it is. (-0 may come back as 0: a sum that begins
with 0 is the same.) So the products have the bits that they have with float32 weights.

Read next: numba_linear.py.
"""

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .numba_exp import fma
from .numba_vectors import GROUP, LANES

PARTS_VERSION = "db3dda0a"  # see renew.py
FORMATS = 5  # ways to guess a scale

Array = NDArray[np.float32]


@njit(error_model="numpy")
def guess_scale(way: int, smallest: np.float32, largest: np.float32) -> np.float32:
    """What a group's scale would be if its format has 15 or 31 steps from the smallest to the largest number
    (Q4_1, Q5_1), or 127, 8 or 16 from 0 to the one furthest from it (Q8_0, Q4_0, Q5_0)."""
    if way < 2:
        scale = (largest - smallest) / np.float32(15 if way == 0 else 31)
    else:
        furthest = max(-smallest, largest)
        scale = furthest / np.float32(127 if way == 2 else 8 if way == 3 else 16)
    high = scale * np.float32(2**13 + 1)  # files keep scales in float16, of 11 bits: the nearest such number
    return high - (high - scale)


@njit(error_model="numpy")
def to_bytes(numbers: Array, scale: np.float32, target: NDArray[np.uint8], at: int) -> bool:
    """target[at + i * LANES] = (numbers[i] - offset) / scale for a group; whether all of them come back."""
    offset = np.min(numbers)
    share = np.float32(1) / scale if scale != 0 else np.float32(0)
    for i in range(GROUP):
        byte = np.floor((numbers[i] - offset) * share + np.float32(0.5))
        if not 0 <= byte <= 255:
            return False
        if fma(np.float32(byte), scale, offset) != numbers[i]:
            return False
        target[at + i * LANES] = np.uint8(byte)
    return True


@njit(error_model="numpy")
def pack_output(
    weight: Array, way: int, at: int, scales_at: int, target: NDArray[np.uint8], scales: Array
) -> int:
    """One output's numbers (K,) to its lane of a panel. Returns the way its scales were guessed, which is the
    next output's first guess; -1 if none brings every number back."""
    for group in range(len(weight) // GROUP):
        numbers = weight[group * GROUP : (group + 1) * GROUP]
        smallest, largest = np.min(numbers), np.max(numbers)
        for turn in range(FORMATS):
            guess = (way + turn) % FORMATS
            scale = guess_scale(guess, smallest, largest)
            if to_bytes(numbers, scale, target, at + group * GROUP * LANES):
                scales[scales_at + group * 2 * LANES] = scale
                scales[scales_at + (group * 2 + 1) * LANES] = smallest
                way = guess
                break
        else:
            return -1
    return way


@njit(parallel=True, cache=True, error_model="numpy")
def bytes_loops(
    workers: int,
    weight: Array,
    order: NDArray[np.int64],
    target: NDArray[np.uint8],
    scales: Array,
    came_back: NDArray[np.bool_],
) -> None:
    """weight (N, K) → target (P, K, LANES), flat, and scales (P, K / GROUP, 2, LANES), flat, all 0 before.
    order (P * LANES or fewer,): the row that goes to each lane, -1 for none. came_back (workers or more,):
    becomes False where a worker's numbers cannot be had again."""
    outputs, inputs = len(order), weight.shape[1]
    panel, scales_panel = inputs * LANES, inputs // GROUP * 2 * LANES
    for worker in prange(workers):
        way = 0
        for n in range(worker * outputs // workers, (worker + 1) * outputs // workers):
            if way >= 0 and order[n] >= 0:
                at, scales_at = n // LANES * panel + n % LANES, n // LANES * scales_panel + n % LANES
                way = pack_output(weight[order[n]], way, at, scales_at, target, scales)
        if way < 0:
            came_back[worker] = False
