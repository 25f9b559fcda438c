"""Memory in pages of 2 MiB, for what is read from end to end at every step: the weights.

A processor keeps few pages' addresses at hand. Weights of some hundred megabytes fill more of the usual 4 KiB
pages than that, so that each page is looked up again, step after step, and reading ahead stops at each one's
end. Linux gives large pages to whoever asks (`madvise`); elsewhere this is ordinary memory.
"""

import math
import mmap
import threading
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["zeros"]

HUGE, LINE, CHUNK = 2 << 20, 64, 32 << 20  # bytes

lock = threading.Lock()
left: list[NDArray[np.uint8]] = []  # the rest of the newest chunk; memory that nobody writes to costs nothing


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of zeros on the CPU, cut from a chunk of large pages. It begins at a line of the cache."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    with lock:
        if not left or len(left[0]) < size:
            left[:] = [new_chunk(max(CHUNK, size))]
        part, left[0] = left[0][:size], left[0][-(-size // LINE) * LINE :]
    return torch.from_numpy(part).view(dtype).view(shape)


def new_chunk(size: int) -> NDArray[np.uint8]:
    """So many bytes, from the beginning of a large page. They are given back when no array uses them."""
    memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # some kernels are built without
        memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    first = -array.ctypes.data % HUGE
    return array[first : first + size]
