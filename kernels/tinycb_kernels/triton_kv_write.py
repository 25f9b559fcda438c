"""The cache write in Triton: each program copies some tokens' keys and values of one KV head.

The checks are in kv_write.py. Read next: numba_attention.py, the same on a CPU.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from .backends import triton_is_interpreted
from .configs import WRITE_TOKENS, WRITE_TOKENS_INTERPRETED, WRITE_WARPS, power_of_two


def write_kv_triton(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Launch the kernel. The arguments are those of `write_kv`."""
    tokens, kv_heads, dim = k.shape
    tile_tokens = WRITE_TOKENS_INTERPRETED if triton_is_interpreted() else WRITE_TOKENS
    with torch.cuda.device_of(k):
        write_kernel[triton.cdiv(tokens, tile_tokens), kv_heads](
            k, v, k_cache, v_cache, slot_mapping.contiguous(),
            *k.stride(), *v.stride(), *k_cache.stride(), *v_cache.stride(), tokens,
            BLOCK_SIZE=k_cache.shape[1], HEAD_DIM=dim, DIMS=power_of_two(dim), TOKENS=tile_tokens,
            num_warps=WRITE_WARPS, enable_fp_fusion=True,
        )  # fmt: skip


@triton.jit(do_not_specialize=["tokens"])
def write_kernel(
    k, v, k_cache, v_cache, slot_mapping,
    k_token, k_head, k_dim, v_token, v_head, v_dim,
    k_cache_block, k_cache_offset, k_cache_head, k_cache_dim,
    v_cache_block, v_cache_offset, v_cache_head, v_cache_dim,
    tokens,
    BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """k, v (T, KH, D) · caches (NB, BS, KH, D) · slot_mapping (T,)."""
    head = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    slot = tl.load(slot_mapping + token, mask=token < tokens, other=-1)  # (TOKENS,)
    dim = tl.arange(0, DIMS).to(tl.int64)
    kept = (slot >= 0)[:, None] & (dim < HEAD_DIM)[None, :]  # (TOKENS, DIMS)
    block = slot // BLOCK_SIZE
    offset = slot % BLOCK_SIZE

    key = tl.load(k + token[:, None] * k_token + head * k_head + dim[None, :] * k_dim, mask=kept)
    k_slot = block * k_cache_block + offset * k_cache_offset + head * k_cache_head  # (TOKENS,)
    tl.store(k_cache + k_slot[:, None] + dim[None, :] * k_cache_dim, key, mask=kept)

    value = tl.load(v + token[:, None] * v_token + head * v_head + dim[None, :] * v_dim, mask=kept)
    v_slot = block * v_cache_block + offset * v_cache_offset + head * v_cache_head  # (TOKENS,)
    tl.store(v_cache + v_slot[:, None] + dim[None, :] * v_cache_dim, value, mask=kept)
