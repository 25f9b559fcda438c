"""gqa_heads_map_to_their_group does not hold"""

import torch


def paged_attention(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale):
    """Repeats the KV heads in the wrong order."""
    out = torch.zeros_like(q)
    block_size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    for r, seq_len in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[r : r + 2].tolist()
        positions = torch.arange(seq_len)
        blocks, offsets = block_table[r, positions // block_size].long(), positions % block_size
        keys = k_cache[blocks, offsets].repeat(1, group, 1)
        values = v_cache[blocks, offsets].repeat(1, group, 1)
        for row in range(begin, end):
            seen = seq_len - (end - row) + 1
            if seen > 0:
                scores = torch.einsum("hd,khd->hk", q[row], keys[:seen]) * scale
                out[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen])
    return out
