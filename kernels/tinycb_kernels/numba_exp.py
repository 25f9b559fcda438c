"""e^x in float32 for the CPU loops, with the same bits in a vector and in a single number.

x is n * ln(2) + r with n whole and |r| <= ln(2) / 2. So e^x is 2^n, written straight into the bits of a
float, times e^r, for which a short series is enough. Only additions and fused multiply-adds, which IEEE 754
rounds alike however the compiler cuts up the loop that they are in; and no branch, so that it can.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOG2_E = np.float32(1 / math.log(2))
LN_2_HIGH = np.float32(0.693359375)  # few bits, so that n * LN_2_HIGH is exact
LN_2_LOW = np.float32(math.log(2) - 0.693359375)

WHOLE = np.float32(1.5 * 2**23)  # a float32 of this size has no fraction: to add it is to round
LOWEST, HIGHEST = np.float32(-88), np.float32(89)  # e**x is 0 for the one, infinite for the other

E2, E3, E4, E5, E6, E7 = (np.float32(1 / math.factorial(k)) for k in range(2, 8))


def emit_fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


fma: Any = intrinsic(emit_fma)
"""a * b + c, rounded once."""


@njit(error_model="numpy")
def power_of_two(shifted: np.float32) -> np.float32:
    """2**n as a float32, for shifted = n + WHOLE and n from -127, which gives 0, to 128, infinity."""
    return np.int32((np.float32(shifted).view(np.int32) << 23) + (127 << 23)).view(np.float32)


@njit(error_model="numpy")
def exp(x: np.float32) -> np.float32:
    """e**x within two units in the last place; 0 from x = -87.7 down, infinite from 88.4 up; NaN for NaN."""
    y = LOWEST if x < LOWEST else x
    y = HIGHEST if y > HIGHEST else y
    shifted = fma(y, LOG2_E, WHOLE)
    n = shifted - WHOLE
    r = fma(n, -LN_2_LOW, fma(n, -LN_2_HIGH, y))
    series = fma(r, E7, E6)
    series = fma(series, r, E5)
    series = fma(series, r, E4)
    series = fma(series, r, E3)
    series = fma(series, r, E2)
    series = fma(series, r, np.float32(1))
    series = fma(series, r, np.float32(1))
    return series * power_of_two(shifted)
