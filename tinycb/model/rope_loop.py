"""The rotation as one compiled loop, in place. Imported only where it runs: importing Numba takes a while."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["rope_loop"]


@njit("void(float32[:, :, ::1], int64, float32[:, ::1], float32[:, ::1])", cache=True, nogil=True)
def rope_loop(
    qkv: NDArray[np.float32], rotated: int, cos: NDArray[np.float32], sin: NDArray[np.float32]
) -> None:
    """qkv (T, heads, D): rotate the first `rotated` heads of each token. cos, sin (T, D/2).

    Plain multiplications and additions, which IEEE 754 rounds alike in a vector and in a single element.
    """
    half = cos.shape[1]
    for t in range(qkv.shape[0]):
        for head in range(rotated):
            for i in range(half):
                first, second = qkv[t, head, i], qkv[t, head, half + i]
                qkv[t, head, i] = first * cos[t, i] - second * sin[t, i]
                qkv[t, head, half + i] = second * cos[t, i] + first * sin[t, i]
