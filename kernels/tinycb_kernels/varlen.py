"""Path 2: attention over packed requests, with offsets in place of the mask.

Same packed q, k and v as mask.py. What a (T, S) matrix said is now said by two numbers for each query: its
keys begin at `kv_begin` and end before `kv_end`, both of which follow from the offsets.

This file checks a call, picks the backend, and holds the plain torch version. The kernels are
triton_varlen.py and numba_attention.py. Read next: paged.py, where the keys are no longer packed.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .checks import check_call, check_index, check_offsets, check_start_offsets
from .mask import attend


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    scale: float | None = None,
    *,
    backend: str = "auto",
    out: Tensor | None = None,
    validate: bool = True,
) -> Tensor:
    """Causal attention of R packed requests, each to its own keys only, aligned bottom-right.

    Request r owns queries `cu_seqlens_q[r] ... cu_seqlens_q[r+1] - 1` and keys `cu_seqlens_k[r] ...
    cu_seqlens_k[r+1] - 1`. Its query i of q_len sees its positions 0 ... kv_len - q_len + i. The mask that
    this amounts to is drawn in `causal_mask`.

    Args:
        q: (T, H, D) float32, bfloat16 or float16; D at most 256; any strides.
        k, v: (S, KH, D) in q's dtype; KH divides H, and query head h reads KV head h // (H // KH).
        cu_seqlens_q, cu_seqlens_k: (R+1,) int32, from 0 to T and from 0 to S, never falling. A request may
            have no queries, no keys, or more queries than keys.
        scale: what scores are multiplied by before the softmax; None for 1/sqrt(D).
        backend: "auto" (Triton on a GPU, Numba on a CPU), "triton", "numba" or "torch".
        out: (T, H, D) in q's dtype and any strides, to write into; None for a new tensor.
        validate: False leaves out the checks that read the offsets' values.

    Returns:
        `out`, (T, H, D), accumulated in float32. A query that may attend to nothing returns 0. A NaN in one
        request's keys or values does not reach another's result.

    Raises:
        ValueError: what is wrong, by argument, before anything is launched.

    The interface is that of FlashAttention's varlen functions (Dao, 2022), and the loop is that of the online
    softmax (Milakov and Gimelshein, 2018).
    """
    scale, backend, out = check_call(q, k, v, ("k", "v"), 1, scale, backend, out)
    requests = check_start_offsets("cu_seqlens_q", cu_seqlens_q, q.device)
    check_index("cu_seqlens_k", cu_seqlens_k, (requests + 1,), q.device)
    if validate:
        check_offsets("cu_seqlens_q", cu_seqlens_q, q.shape[0], "T, the rows of q")
        check_offsets("cu_seqlens_k", cu_seqlens_k, k.shape[0], "S, the rows of k")
    if out.numel():
        implementation(backend)(q, k, v, cu_seqlens_q, cu_seqlens_k, scale, out)
    return out


def implementation(backend: str) -> Callable[..., None]:
    """The function that does the work, imported when first asked for."""
    if backend == "triton":
        from .triton_varlen import varlen_triton

        return varlen_triton
    if backend == "numba":
        from .numba_calls import varlen_numba

        return varlen_numba
    return varlen_torch


def varlen_torch(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, scale: float, out: Tensor
) -> None:
    """One request after the other, as the definition reads."""
    q_starts, k_starts = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for r in range(len(q_starts) - 1):
        queries = slice(q_starts[r], q_starts[r + 1])
        keys = slice(k_starts[r], k_starts[r + 1])
        out[queries] = attend_request(q[queries], k[keys], v[keys], scale)


def attend_request(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One request: its queries (q_len, H, D) are the last q_len of its positions (seq_len, KH, D)."""
    q_len, seq_len = q.shape[0], k.shape[0]
    # tril's diagonal d keeps column j of row i where j - i <= d: bottom-right is d = seq_len - q_len.
    mask = torch.ones(q_len, seq_len, dtype=torch.bool, device=q.device).tril(seq_len - q_len)
    return attend(q, k, v, mask, scale)  # (q_len, H, D)
