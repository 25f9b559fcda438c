"""Write a paged attention that passes the theorems: a solution."""

import torch
from torch import Tensor


def paged_attention(
    q: Tensor,  # (T, H, D)
    k_cache: Tensor,  # (NB, BS, KH, D)
    v_cache: Tensor,  # (NB, BS, KH, D)
    block_table: Tensor,  # (R, MB)
    query_start_loc: Tensor,  # (R + 1,)
    seq_lens: Tensor,  # (R,)
    scale: float,
) -> Tensor:
    """The result of every row, (T, H, D)."""
    out = torch.zeros_like(q)
    block_size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    for r, seq_len in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[r : r + 2].tolist()
        positions = torch.arange(seq_len)
        blocks, offsets = block_table[r, positions // block_size].long(), positions % block_size
        keys = k_cache[blocks, offsets].repeat_interleave(group, dim=1)  # (seq_len, H, D)
        values = v_cache[blocks, offsets].repeat_interleave(group, dim=1)
        for row in range(begin, end):
            seen = seq_len - (end - row) + 1  # the last row sees all of them
            if seen > 0:
                scores = torch.einsum("hd,khd->hk", q[row], keys[:seen]) * scale
                out[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen])
    return out
