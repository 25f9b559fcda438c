"""Which code runs a call: Triton, the Numba loops, or plain torch.

`auto` means Triton on a GPU, Numba on a CPU, and torch where neither fits. Only names are decided here;
the functions in varlen.py, paged.py and kv_write.py import the code for the name they get.

It never sets TRITON_INTERPRET: that works only before anything imports triton, so it is up to the program's
first lines. Read next: configs.py, the launch configurations.
"""

import functools
import importlib.util

import torch

BACKENDS = ("auto", "triton", "numba", "torch")


def choose_backend(backend: str, device: torch.device) -> str:
    """The name of the backend to use: "triton", "numba" or "torch"; ValueError if it cannot run there."""
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(map(repr, BACKENDS))}")
    if backend == "auto":
        if device.type == "cuda":
            return "triton"
        return "numba" if device.type == "cpu" and has_module("numba") else "torch"
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"backend: 'numba' runs on the CPU, the tensors are on {device}; use 'triton'")
    if backend == "numba" and not has_module("numba"):
        raise ValueError("backend: 'numba' is not installed here; use 'auto' or 'torch'")
    if backend == "triton" and not has_module("triton"):
        raise ValueError("backend: 'triton' is not installed here; use 'auto' or 'torch'")
    if backend == "triton" and device.type == "cpu" and not triton_is_interpreted():
        raise ValueError(
            "backend: 'triton' on CPU tensors needs Triton's interpreter, and it is off. Set the environment "
            "variable TRITON_INTERPRET=1 before anything imports triton (transformers' models do), or use "
            "'numba', which is what 'auto' takes on a CPU"
        )
    return backend


@functools.cache
def has_module(name: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return importlib.util.find_spec(name) is not None


@functools.cache
def triton_is_interpreted() -> bool:
    """Whether TRITON_INTERPRET=1 was set early enough to take effect.

    The environment variable is read whenever a `@triton.jit` is met. Triton's own library is full of them, so
    its `tl.max` remembers how things stood when triton itself was imported.
    """
    import triton
    import triton.language as tl

    return not isinstance(tl.max, triton.runtime.JITFunction)
