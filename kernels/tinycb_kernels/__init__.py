"""Attention for a batch of requests of unequal lengths: tensors in, tensors out.

Four functions. `mask_attention` takes an explicit (T, S) mask, `varlen_attention` replaces the mask with
offsets, `paged_attention` replaces the packed keys with a block table, and `write_kv` fills the paged cache
that it reads. `causal_mask` draws the mask that the offsets stand for, and `plan_paged` lays out the work of
`paged_attention` on a GPU for callers that know the lengths.

It does not know what a request, a scheduler or a model is, and importing it loads neither Triton nor Numba:
each is loaded by the first call that needs it.

Letters in shapes: `T` packed query tokens, `S` packed KV tokens, `R` requests, `H` query heads, `KH` KV
heads, `G = H // KH`, `D` head dim, `NB` blocks, `BS` block size, `MB` blocks in a row of the block table.

Read next: mask.py, then varlen.py, paged.py and kv_write.py; each ends in the plain torch version of what
triton_*.py does on a GPU and numba_*.py on a CPU.
"""

from .kv_write import write_kv
from .mask import causal_mask, mask_attention
from .paged import paged_attention
from .triton_plan import PagedPlan, plan_paged
from .varlen import varlen_attention

__all__ = [
    "PagedPlan",
    "causal_mask",
    "mask_attention",
    "paged_attention",
    "plan_paged",
    "varlen_attention",
    "write_kv",
]
