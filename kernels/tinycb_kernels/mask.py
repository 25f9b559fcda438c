"""Path 1: attention with an explicit (T, S) mask over packed requests.

The whole idea of batching unequal requests in one picture, and the slowest way to do it: the matrix has T * S
entries, nearly all of them False. `attend` is also the arithmetic of every torch reference in this package.

There is no kernel here, and no backend to choose. One limit cannot be lifted: a hidden key has weight 0, and
0 * NaN is NaN, so a NaN in one request's values reaches its neighbours. The other two paths do not share it.

Read next: varlen.py, where two offsets take the place of the matrix.
"""

import torch
from torch import Tensor

from .checks import (
    check_keys,
    check_offsets,
    check_query,
    check_scale,
    check_start_offsets,
    check_tensor,
)


def causal_mask(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> Tensor:
    """The block-diagonal, bottom-right causal mask that two offset tensors stand for.

    Three requests with (new tokens, all tokens) = (3, 3), (1, 4), (2, 3): a whole prompt, a decode step, and
    the last two tokens of a prompt of three. `#` is True, "may attend":

                  k of A    k of B      k of C
                 0  1  2   0  1  2  3   0  1  2
        q A 0  [ #  .  . | .  .  .  . | .  .  . ]
          A 1  [ #  #  . | .  .  .  . | .  .  . ]
          A 2  [ #  #  # | .  .  .  . | .  .  . ]
               [---------+------------+---------]
          B 3  [ .  .  . | #  #  #  # | .  .  . ]
               [---------+------------+---------]
          C 1  [ .  .  . | .  .  .  . | #  #  . ]
          C 2  [ .  .  . | .  .  .  . | #  #  # ]

    The last query of a request sees all of its keys ("bottom-right"), so one rule serves prompts, chunks and
    single tokens: query i of q_len sees positions 0 ... seq_len - q_len + i. With q_len > seq_len the first
    q_len - seq_len queries see nothing.

    Args:
        cu_seqlens_q: (R+1,) int32, where each request's queries start and, last, T.
        cu_seqlens_k: (R+1,) int32, where each request's keys start and, last, S.

    Returns:
        (T, S) bool, True where a query may attend to a key.

    Raises:
        ValueError: the offsets do not start at 0, fall somewhere, or differ in number.
    """
    requests = check_start_offsets("cu_seqlens_q", cu_seqlens_q, cu_seqlens_q.device)
    check_tensor("cu_seqlens_k", cu_seqlens_k, (requests + 1,), [torch.int32], cu_seqlens_q.device)
    check_offsets("cu_seqlens_q", cu_seqlens_q, int(cu_seqlens_q[-1]), "its own end")
    check_offsets("cu_seqlens_k", cu_seqlens_k, int(cu_seqlens_k[-1]), "its own end")
    q_len, kv_len = cu_seqlens_q.diff(), cu_seqlens_k.diff()  # (R,)
    request = torch.arange(requests, device=q_len.device)  # (R,)
    request_of_q = request.repeat_interleave(q_len)  # (T,)
    request_of_k = request.repeat_interleave(kv_len)  # (S,)
    index_in_q = torch.arange(len(request_of_q), device=q_len.device) - cu_seqlens_q[request_of_q]  # (T,)
    index_in_k = torch.arange(len(request_of_k), device=q_len.device) - cu_seqlens_k[request_of_k]  # (S,)
    last_visible = (kv_len - q_len)[request_of_q] + index_in_q  # (T,)
    same_request = request_of_q[:, None] == request_of_k  # (T, S)
    return same_request & (index_in_k <= last_visible[:, None])


def mask_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Softmax attention in which query i may attend to key j where `mask[i, j]` is True.

    Args:
        q: (T, H, D) float32, bfloat16 or float16; D at most 256; any strides.
        k, v: (S, KH, D) in q's dtype; KH divides H, and query head h reads KV head h // (H // KH).
        mask: (T, S) bool, for example from `causal_mask`. Any pattern is legal.
        scale: what scores are multiplied by before the softmax; None for 1/sqrt(D).

    Returns:
        (T, H, D) in q's dtype, accumulated in float32. A query that may attend to nothing returns 0.

    Raises:
        ValueError: a wrong shape, dtype or device, by argument.

    The arithmetic is that of "Attention Is All You Need" (Vaswani et al., 2017), section 3.2.1.
    """
    check_query(q)
    check_keys(q, k, v, ("k", "v"), leading=1)
    check_tensor("mask", mask, (q.shape[0], k.shape[0]), [torch.bool], q.device)
    return attend(q, k, v, mask, check_scale(scale, q.shape[2]))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """`mask_attention` without its checks: (T, H, D), (S, KH, D), (S, KH, D), (T, S) -> (T, H, D)."""
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)  # (T, H, D)
    if not mask.numel():
        return out
    group = q.shape[1] // k.shape[1]
    hidden = ~mask[:, None]  # (T, 1, S)
    for kv_head in range(k.shape[1]):  # one at a time: the scores of all heads at once may not fit in memory
        heads = slice(kv_head * group, (kv_head + 1) * group)
        keys, values = k[:, kv_head].float(), v[:, kv_head].float()  # (S, D)
        scores = q[:, heads].float() @ keys.T * scale  # (T, G, S)
        scores = scores.masked_fill(hidden, -torch.inf)
        largest = scores.amax(dim=-1, keepdim=True)  # (T, G, 1)
        # A query with no key has largest = -inf, and -inf - -inf is NaN: give it a maximum of 0 instead.
        weights = (scores - largest.masked_fill(largest == -torch.inf, 0.0)).exp()  # (T, G, S)
        total = weights.sum(dim=-1, keepdim=True)  # (T, G, 1)
        out[:, heads] = (weights @ values / total.masked_fill(total == 0, 1.0)).to(q.dtype)  # (T, G, D)
    return out
