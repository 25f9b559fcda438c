"""What it takes to call Numba's loops safely from a program that uses torch.

Tensors become arrays that share their memory. And three things that Numba leaves to its caller: one parallel
call at a time (its fallback thread pool aborts on two); torch's own thread count survives; and a forked child
is told why it cannot go on, where GNU OpenMP would end it without a reason.

No arithmetic here. Read next: numba_kv_write.py.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# What stands for each float in compiled code. torch has no NumPy array for bfloat16, and Numba no float16.
STORED_AS = {torch.float32: torch.float32, torch.bfloat16: torch.uint16, torch.float16: torch.int16}

one_call_at_a_time = threading.Lock()
first_process: list[int] = []


def run_parallel(loops: Callable[..., None], *arguments: Any) -> None:
    """Call `loops(workers, *arguments)`; workers is the number of threads that should share the work."""
    threads = torch.get_num_threads()
    with one_call_at_a_time:
        if not first_process:
            first_process.append(os.getpid())
        if first_process[0] != os.getpid():
            raise RuntimeError(
                "this process was forked from one that had run Numba's parallel loops, and their threads "
                "do not survive a fork: start workers with multiprocessing's 'spawn' method"
            )
        loops(min(threads, most_threads()), *arguments)
    if torch.get_num_threads() != threads:  # Numba's first call sets the OpenMP count that torch goes by
        torch.set_num_threads(threads)


@cache
def most_threads() -> int:
    """How many threads Numba has."""
    import numba  # here, so that what has torch to fall back on can be imported without it

    return int(numba.get_num_threads())


def as_flat(tensor: Tensor) -> NDArray[Any]:
    """A tensor's memory, from its first element to its last, as one flat array. Nothing is copied."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.detach().as_strided((extent if tensor.numel() else 0,), (1,))
    array: NDArray[Any] = flat.view(STORED_AS[tensor.dtype]).numpy()
    return array


def as_float32(q: Tensor) -> NDArray[np.float32]:
    """The queries as a contiguous float32 array: converted or copied if they are not, for they are few."""
    array: NDArray[np.float32] = q.detach().float().contiguous().numpy()
    return array


@contextmanager
def result_array(out: Tensor) -> Iterator[NDArray[Any]]:
    """A contiguous float32 array to write `out` into: its own memory if it is that, and else a copied one."""
    if out.dtype == torch.float32 and out.is_contiguous():
        yield out.detach().numpy()
    else:
        result = torch.empty(out.shape, dtype=torch.float32)
        yield result.numpy()
        out.copy_(result)
