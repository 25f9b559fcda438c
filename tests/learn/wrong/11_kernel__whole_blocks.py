"""memory_of_nobody_is_never_read does not hold"""

import torch


def paged_attention(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale):
    """Gathers whole blocks, and gives what is behind the last token a weight of zero."""
    out = torch.zeros_like(q)
    block_size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    for r, seq_len in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[r : r + 2].tolist()
        blocks = block_table[r, : -(-seq_len // block_size)].long()
        keys = k_cache[blocks].flatten(0, 1).repeat_interleave(group, dim=1)
        values = v_cache[blocks].flatten(0, 1).repeat_interleave(group, dim=1)
        for row in range(begin, end):
            seen = seq_len - (end - row) + 1
            if seen > 0:
                scores = torch.einsum("hd,khd->hk", q[row], keys) * scale
                scores[:, seen:] = float("-inf")
                out[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), values)
    return out
