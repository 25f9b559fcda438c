"""The model's compiled CPU loops (Numba). Imported only where it runs: importing Numba takes a while.

Plain multiplications and additions, which IEEE 754 rounds alike in a vector and in a single element: that is
what makes the loop's bits independent of how the compiler cuts it up. So the exponential is written out here,
e^x = 2^n · e^r with |r| ≤ ln 2 / 2, and its series stops where fp32 does.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["rms_norm_loop", "silu_and_mul_loop"]

_F = np.float32
_LOG2_E = _F(1 / math.log(2))
_LN2_HIGH = _F(355 / 512)  # few bits, so that n times it is exact
_LN2_LOW = _F(math.log(2) - 355 / 512)
_HALF, _ONE = _F(0.5), _F(1.0)
_C7, _C6, _C5, _C4, _C3 = (_F(1 / math.factorial(n)) for n in (7, 6, 5, 4, 3))
_LOWEST, _HIGHEST = _F(-87.0), _F(89.0)  # e^-87 is lost beside 1; e^89 is infinite in fp32
_POWERS = np.array([2.0**n for n in range(-127, 128)] + [np.inf], dtype=np.float32)  # 2^n at n + 127


@njit("void(float32[:, ::1], float32[:, ::1])", cache=True, error_model="numpy")
def silu_and_mul_loop(gate_up: np.ndarray, out: np.ndarray) -> None:
    """out[t, i] = gate / (1 + e^-gate) · up. gate_up: (T, 2·I), out: (T, I), both contiguous."""
    inner = out.shape[1]
    for t in range(out.shape[0]):
        for i in range(inner):
            gate = gate_up[t, i]
            x = -gate
            x = x if x > _LOWEST else _LOWEST  # also where it is NaN: the result is NaN by `gate` below
            x = x if x < _HIGHEST else _HIGHEST
            n = np.floor(x * _LOG2_E + _HALF)
            r = x - n * _LN2_HIGH - n * _LN2_LOW
            series = ((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _HALF
            e_x = (series * r * r + r + _ONE) * _POWERS[np.int64(n) + 127]
            out[t, i] = gate / (_ONE + e_x) * gate_up[t, inner + i]


@njit("void(float32[:, ::1], float32[::1], float64, float32[:, ::1])", cache=True, error_model="numpy")
def rms_norm_loop(x: np.ndarray, weight: np.ndarray, eps: float, out: np.ndarray) -> None:
    """out[t] = x[t] / sqrt(mean(x[t]²) + eps) · weight. x, out: (T, E), both contiguous.

    The squares are added in 16 lanes, which fill a vector register, and the lanes then one by one.
    """
    width = x.shape[1]
    whole = width // 16 * 16
    for t in range(x.shape[0]):
        lanes = np.zeros(16, dtype=np.float32)
        for start in range(0, whole, 16):
            for lane in range(16):
                lanes[lane] += x[t, start + lane] * x[t, start + lane]
        total = 0.0
        for lane in range(16):
            total += lanes[lane]
        for i in range(whole, width):
            total += x[t, i] * x[t, i]
        scale = np.float32(1.0 / math.sqrt(total / width + eps))
        for i in range(width):
            out[t, i] = x[t, i] * scale * weight[i]
