"""Filling the paged cache: each new token's key and value go to the slot that was chosen for it.

A slot is one position of one block: `slot = block * BS + offset`. A negative slot means "store nothing": that
is how a padded row goes through a batch without leaving a trace.

This file checks a call, picks the backend, and holds the plain torch version. The kernels are
triton_kv_write.py and numba_kv_write.py. Read next: configs.py, then triton_varlen.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .backends import choose_backend
from .checks import FLOATS, check_heads_and_dim, check_slots, check_tensor, check_writable


def write_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    backend: str = "auto",
    validate: bool = True,
) -> None:
    """Copy T tokens' keys and values into the cache, in place.

    Args:
        k, v: (T, KH, D) float32, bfloat16 or float16; any strides.
        k_cache, v_cache: (NB, BS, KH, D) in k's dtype; any strides. Written to.
        slot_mapping: (T,) int64, `block * BS + offset` of each token; negative: skip the token.
        backend: "auto" (Triton on a GPU, Numba on a CPU), "triton", "numba" or "torch".
        validate: False leaves out the checks that read the slots' values.

    Raises:
        ValueError: what is wrong, by argument, before anything is written. Two tokens for one slot are an
            error too: which of them would win is not defined.
    """
    if not isinstance(k, Tensor):
        raise ValueError(f"k: got {type(k).__name__}, expected a torch.Tensor")
    check_tensor("k", k, (None, None, None), FLOATS, k.device)
    check_heads_and_dim("k", k)
    check_tensor("v", v, tuple(k.shape), [k.dtype], k.device)
    check_tensor("k_cache", k_cache, (None, None, *k.shape[1:]), [k.dtype], k.device)
    check_tensor("v_cache", v_cache, tuple(k_cache.shape), [k.dtype], k.device)
    check_writable("k_cache", k_cache)
    check_writable("v_cache", v_cache)
    check_tensor("slot_mapping", slot_mapping, (k.shape[0],), [torch.int64], k.device)
    backend = choose_backend(backend, k.device)
    if validate:
        check_slots(slot_mapping, k_cache.shape[0] * k_cache.shape[1])
    if k.numel():
        implementation(backend)(k, v, k_cache, v_cache, slot_mapping)


def implementation(backend: str) -> Callable[..., None]:
    """The function that does the work, imported when first asked for."""
    if backend == "triton":
        from .triton_kv_write import write_kv_triton

        return write_kv_triton
    if backend == "numba":
        from .numba_kv_write import write_kv_numba

        return write_kv_numba
    return write_kv_torch


def write_kv_torch(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Drop the skipped tokens, split each slot into block and offset, assign."""
    tokens = (slot_mapping >= 0).nonzero().squeeze(1)  # (tokens kept,)
    slots = slot_mapping[tokens]  # (tokens kept,)
    block_size = k_cache.shape[1]
    blocks, offsets = slots // block_size, slots % block_size  # (tokens kept,)
    k_cache[blocks, offsets] = k[tokens]
    v_cache[blocks, offsets] = v[tokens]
