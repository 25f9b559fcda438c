"""What the CPU loops do around the arithmetic: find a tile's request, bring rows in and take results out.

A row of keys is copied into a small float32 tile before it is used. So the arithmetic is the same compiled
code for every dtype and every stride, and nothing but these few rows is ever converted. 16-bit floats arrive
as integers, for Numba has no such floats on a CPU: bfloat16's bits as uint16, float16's as int16.

No arithmetic on scores here. Read next: numba_varlen.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from .numba_softmax import FUSED, Array


@njit(cache=True)
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


@njit(cache=True)
def load_queries(queries: Array, q: Array, first_token: int, rows: int, first_head: int, group: int) -> None:
    """Copy the rows of one tile: (token, head) pairs, all heads of a KV head's group for one token first."""
    for row in range(rows):
        for d in range(q.shape[2]):
            queries[row, d] = q[first_token + row // group, first_head + row % group, d]


@njit(cache=True)
def store_result(
    out: Array, acc: Array, total: Array, first_token: int, rows: int, first_head: int, group: int
) -> None:
    """acc / total to where the rows came from; 0 for a row that saw no key."""
    for row in range(rows):
        for d in range(out.shape[2]):
            weighted = acc[row, d] / total[row] if total[row] != 0 else np.float32(0)
            out[first_token + row // group, first_head + row % group, d] = weighted


@njit(cache=True)
def load_row(tile: Array, j: int, source: NDArray[Any], offset: np.int64, stride: int) -> None:
    """tile[j] = the D numbers from `source[offset]` on, `stride` apart, as float32."""
    for d in range(tile.shape[1]):
        tile[j, d] = widen(source[np.uintp(offset + d * stride)])  # unsigned: no index counts from the end


def widen(stored: Any) -> Any:
    """A stored number as float32. Exists in compiled code only, as the overload below."""
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
