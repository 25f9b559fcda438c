"""Path 3: attention that reads keys and values where they lie, through a block table.

The cache is cut into blocks of BS positions, and a request's blocks may lie anywhere in it, so position `pos`
of request r is found in two steps:

    seq 0 1 2 | 3 4 5 | 6        BS = 3, block_table[r] = [7, 2, 5, -1]
         │        │      │
      block 7  block 2  block 5  physical = block_table[r, pos // BS],  offset = pos % BS

Nothing is gathered, and nothing moves when a request grows. Prompts, chunks and single tokens are one call.

This file checks a call, picks the backend, and holds the plain torch version. The kernels are
triton_paged.py and numba_attention.py. Read next: kv_write.py, which fills the cache.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .checks import (
    check_block_table,
    check_call,
    check_index,
    check_offsets,
    check_seq_lens,
    check_start_offsets,
)
from .varlen import attend_request

if TYPE_CHECKING:
    from .triton_plan import PagedPlan


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float | None = None,
    *,
    backend: str = "auto",
    out: Tensor | None = None,
    validate: bool = True,
    plan: "PagedPlan | None" = None,
) -> Tensor:
    """Causal attention of R packed requests to keys and values in a paged cache, aligned bottom-right.

    Request r owns queries `query_start_loc[r] ... query_start_loc[r+1] - 1`, the last q_len of its
    `seq_lens[r]` tokens. The keys and values of all seq_len tokens are in the cache already (`write_kv`).

    Args:
        q: (T, H, D) float32, bfloat16 or float16; D at most 256; any strides.
        k_cache, v_cache: (NB, BS, KH, D) in q's dtype, any strides; KH divides H, and query head h reads KV
            head h // (H // KH).
        block_table: (R, MB) int32, the block that holds positions BS*column ... BS*column + BS - 1. Entries
            past a sequence's last block may hold anything and are not read.
        query_start_loc: (R+1,) int32, from 0 to T, never falling.
        seq_lens: (R,) int32, tokens in the cache for each request, at most MB * BS. 0 is legal, and so is
            fewer tokens than queries.
        scale: what scores are multiplied by before the softmax; None for 1/sqrt(D).
        backend: "auto" (Triton on a GPU, Numba on a CPU), "triton", "numba" or "torch".
        out: (T, H, D) in q's dtype and any strides, to write into; None for a new tensor.
        validate: False leaves out the checks that read index tensors' values.
        plan: from `plan_paged`, how Triton's programs share the work; other backends need none. None: it is
            made here, for which the lengths are read back from the device, in every call. A loop over layers
            makes one and passes it to all; a CUDA graph cannot be captured without.

    Returns:
        `out`, (T, H, D), accumulated in float32. A query that may attend to nothing returns 0. Cache slots
        that belong to no request, or lie past a sequence's end, are never read into a result.

    Raises:
        ValueError: what is wrong, by argument, before anything is launched.

    The idea is PagedAttention's (Kwon et al., 2023); the arguments have the names vLLM gives them.
    """
    scale, backend, out = check_call(
        q, k_cache, v_cache, ("k_cache", "v_cache"), 2, scale, backend, out
    )  # fmt: skip
    requests = check_start_offsets("query_start_loc", query_start_loc, q.device)
    check_index("seq_lens", seq_lens, (requests,), q.device)
    check_index("block_table", block_table, (requests, None), q.device)
    num_blocks, block_size = k_cache.shape[:2]
    if validate:
        check_offsets("query_start_loc", query_start_loc, q.shape[0], "T, the rows of q")
        check_seq_lens(seq_lens, block_table.shape[1], block_size)
        check_block_table(block_table, seq_lens, num_blocks, block_size)
    arguments = (q, k_cache, v_cache, block_table, query_start_loc, seq_lens)
    if backend == "triton" and out.numel():
        plan = fitting_plan(plan, q, k_cache.shape[2], query_start_loc, seq_lens, validate)
        implementation(backend)(*arguments, scale, out, plan)
    elif out.numel():
        implementation(backend)(*arguments, scale, out)
    return out


def fitting_plan(
    plan: "PagedPlan | None",
    q: Tensor,
    kv_heads: int,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    validate: bool,
) -> "PagedPlan":
    """The caller's plan if it fits the call, or a new one. ValueError names what it was made for instead."""
    from .triton_plan import check_plan, plan_paged

    if plan is not None:
        lengths = (query_start_loc.tolist(), seq_lens.tolist()) if validate else None
        check_plan(plan, q, kv_heads, len(seq_lens), lengths)
        return plan
    if q.is_cuda and torch.cuda.is_current_stream_capturing():
        raise ValueError("plan: got None while a CUDA graph is captured, expected one from plan_paged")
    heads, head_dim = q.shape[1:]
    return plan_paged(
        query_start_loc.tolist(), seq_lens.tolist(), num_heads=heads, num_kv_heads=kv_heads,
        head_dim=head_dim, dtype=q.dtype, device=q.device,
    )  # fmt: skip


def implementation(backend: str) -> Callable[..., None]:
    """The function that does the work, imported when first asked for."""
    if backend == "triton":
        from .triton_paged import paged_triton

        return paged_triton
    if backend == "numba":
        from .numba_calls import paged_numba

        return paged_numba
    return paged_torch


def paged_torch(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float,
    out: Tensor,
) -> None:
    """One request after the other: gather its blocks, cut off what is past its end, attend."""
    block_size = k_cache.shape[1]
    starts = query_start_loc.tolist()
    for r, seq_len in enumerate(seq_lens.tolist()):
        blocks = block_table[r, : -(-seq_len // block_size)].long()  # (used blocks,)
        keys = k_cache[blocks].flatten(0, 1)[:seq_len]  # (seq_len, KH, D)
        values = v_cache[blocks].flatten(0, 1)[:seq_len]  # (seq_len, KH, D)
        queries = slice(starts[r], starts[r + 1])
        out[queries] = attend_request(q[queries], keys, values, scale)
