"""The cache write on a CPU: one compiled loop over tokens, not a parallel one.

A step writes a few hundred rows at most. Copying them takes less time than waking the other threads would.

The checks are in kv_write.py. This is the last file; tests/kernels shows each function at work.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from .numba_threads import as_flat

PARTS_VERSION = "db3dda0a"  # see renew.py


def write_kv_numba(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Hand arrays and strides to the loop, for keys and then for values."""
    slots = slot_mapping.contiguous().numpy()
    for tokens, cache in ((k, k_cache), (v, v_cache)):
        block_size, sizes = cache.shape[1], (cache.shape[2], cache.shape[3])
        write_loop(as_flat(tokens), as_flat(cache), tokens.stride(), cache.stride(), block_size, sizes, slots)


@njit(cache=True, nogil=True)
def write_loop(
    tokens: NDArray[Any],
    cache: NDArray[Any],
    strides: tuple[int, ...],
    cache_strides: tuple[int, ...],
    block_size: int,
    sizes: tuple[int, int],
    slots: NDArray[np.int64],
) -> None:
    """tokens (T, KH, D) and cache (NB, BS, KH, D) by their strides · sizes (KH, D) · slots (T,)."""
    for t in range(len(slots)):
        if slots[t] < 0:
            continue
        block, offset = slots[t] // block_size, slots[t] % block_size
        for head in range(sizes[0]):
            source = t * strides[0] + head * strides[1]
            target = block * cache_strides[0] + offset * cache_strides[1] + head * cache_strides[2]
            for d in range(sizes[1]):  # unsigned indices: none counts from the end
                cache[np.uintp(target + d * cache_strides[3])] = tokens[np.uintp(source + d * strides[2])]
