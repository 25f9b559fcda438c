"""a_query_sees_exactly_its_own_past does not hold"""

import torch


def paged_attention(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale):
    """Counts positions from a request's first new token."""
    out = torch.zeros_like(q)
    block_size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    for r, seq_len in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[r : r + 2].tolist()
        positions = torch.arange(seq_len)
        blocks, offsets = block_table[r, positions // block_size].long(), positions % block_size
        keys = k_cache[blocks, offsets].repeat_interleave(group, dim=1)
        values = v_cache[blocks, offsets].repeat_interleave(group, dim=1)
        for row in range(begin, end):
            seen = min(seq_len, row - begin + 1)
            if seen > 0:
                scores = torch.einsum("hd,khd->hk", q[row], keys[:seen]) * scale
                out[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen])
    return out
