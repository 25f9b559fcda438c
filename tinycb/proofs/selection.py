"""Which keys did it look at? Read out of the kernel itself, with values that are one-hot.

With q = 0 every score is 0, so a query gives the same weight to each key that it sees. If slot s holds 1 in
dim d and 0 elsewhere, dim d of the result is the weight that slot s got:

    v[s] = one-hot(s)        out[row, head] = weights of slots 0, 1, 2, …, D - 1

Slots beyond D take further launches. Nothing here computes an index the way a kernel does.

Next: `picture.py` draws what is read here.
"""

from __future__ import annotations

import numpy as np
import torch

from tinycb.proofs.draw import Drawn, arguments, slots_of
from tinycb.proofs.launch import Subject, attend
from tinycb.proofs.oracle import Array, visible_keys

__all__ = ["expected_weights", "num_slots", "read_weights"]


def num_slots(drawn: Drawn) -> int:
    """Slots of the cache, nobody's included; rows of the packed keys where there is no cache."""
    layout = drawn.batch.layout
    return drawn.batch.num_keys if layout is None else drawn.num_blocks * layout.block_size


def read_weights(kind: str, subject: Subject, drawn: Drawn) -> Array:
    """(T, H, slots): the weight that each query gave to each slot, whoever's it is."""
    batch, total = drawn.batch, num_slots(drawn)
    tensors = arguments(kind, drawn, nobody=0.0)
    tensors["q"].zero_()
    values = tensors["v_cache" if kind == "paged" else "v"]
    flat = values.view(total, batch.kv_heads, batch.head_dim)
    read = []
    for start in range(0, total, batch.head_dim):
        count = min(batch.head_dim, total - start)
        flat.zero_()
        flat[start : start + count, :, :count] = torch.eye(count, dtype=flat.dtype, device=flat.device)[
            :, None
        ]
        read.append(attend(subject, drawn, tensors)[:, :, :count].double().numpy())
    return np.concatenate(read, axis=-1) if read else np.zeros((batch.num_queries, batch.heads, 0))


def expected_weights(drawn: Drawn) -> Array:
    """(T, slots): 1/n for each of the n keys that a query sees."""
    expected = np.zeros((drawn.batch.num_queries, num_slots(drawn)))
    row = 0
    for r, (q_len, seq_len) in enumerate(drawn.batch.rows):
        slots = slots_of(drawn, r)
        for query in range(q_len):
            seen = visible_keys(q_len, seq_len, query)
            for position in seen:
                expected[row, slots[position]] = 1 / len(seen)
            row += 1
    return expected
