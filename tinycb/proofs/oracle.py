"""What is right: attention of one request, in float64, straight from the definition.

It knows no batch, no packing, no offsets, no blocks and no tiles: a fault in how requests are put together
cannot also be in here. Numpy only, and slow, because it is read more often than it is run.

Next: `draw.py`, which cuts a packed batch into what this takes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["attend_alone", "visible_keys"]

Array = npt.NDArray[np.float64]


def visible_keys(q_len: int, seq_len: int, query: int) -> range:
    """The positions that a query sees. The last of `q_len` queries is at the last of `seq_len` positions.

    q_len 2, seq_len 5:    query 0 at position 3    # # # # .
                           query 1 at position 4    # # # # #
    """
    position = seq_len - q_len + query
    return range(position + 1)  # empty for a query before position 0: padding


def attend_alone(q: Array, k: Array, v: Array, scale: float) -> Array:
    """Causal attention of one request.

    Args:
        q: (q_len, H, D), its new tokens. k, v: (seq_len, KH, D), all its tokens; KH divides H.
        scale: what scores are multiplied by.

    Returns:
        (q_len, H, D). A query that sees nothing gets 0.
    """
    q_len, heads, head_dim = q.shape
    seq_len, kv_heads = k.shape[:2]
    group = heads // kv_heads
    out = np.zeros((q_len, heads, head_dim))
    for i in range(q_len):
        seen = len(visible_keys(q_len, seq_len, i))
        if not seen:
            continue
        queries = q[i].reshape(kv_heads, group, head_dim)  # head h reads KV head h // group
        keys, values = k[:seen].transpose(1, 2, 0), v[:seen].transpose(1, 0, 2)  # (KH, D, n), (KH, n, D)
        scores = queries @ keys * scale  # (KH, G, n)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[i] = (weights @ values).reshape(heads, head_dim)
    return out
