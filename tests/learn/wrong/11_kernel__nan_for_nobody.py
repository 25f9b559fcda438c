"""(sees nothing), head 0, weighs its keys unevenly"""

import torch


def paged_attention(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale):
    """A softmax over no keys."""
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
            hidden = positions > seq_len - (end - row)
            scores = torch.einsum("hd,khd->hk", q[row], keys) * scale
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1) if seq_len else scores
            out[row] = torch.einsum("hk,khd->hd", weights, values)
    return out
