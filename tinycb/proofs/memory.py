"""Other ways to lay a tensor out in memory: the same numbers, other strides, NaN in the gaps.

A cache that interleaves keys with values, q as a slice of a fused projection, heads before tokens: all of
these reach a kernel as ordinary tensors whose strides are not what their shape suggests.

Next: `cache_write.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["STRIDES", "restride"]

STRIDES = {
    "wide": "with an unused head after every head",
    "beside": "beside one another: keys and values in one tensor, q in a fused projection",
    "heads first": "heads first",
    "spread": "with a gap after every number",
}


def restride(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a call, laid out in one of the ways of STRIDES. Index tensors get a gap too."""
    changed = {key: _lay_out(name, tensor) for key, tensor in tensors.items()}
    for k, v in (("k", "v"), ("k_cache", "v_cache")):
        if name == "beside" and k in tensors:
            both = torch.stack(
                [tensors[k], tensors[v]], dim=1
            )  # (NB, 2, BS, KH, D): the block stride doubles
            changed[k], changed[v] = both[:, 0], both[:, 1]
    return changed


def _lay_out(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor if tensor.dim() < 2 else _with_gaps(tensor, tensor.dim() - 1, 0)
    if name == "wide":
        return _with_gaps(tensor, tensor.dim() - 2, math.nan)
    if name == "spread":
        return _with_gaps(tensor, tensor.dim() - 1, math.nan)
    if name == "heads first":
        return tensor.transpose(0, -2).contiguous().transpose(0, -2)
    fused = torch.full((*tensor.shape[:-2], tensor.shape[-2] + 2, tensor.shape[-1]), math.nan).to(tensor)
    fused[..., : tensor.shape[-2], :] = tensor
    return fused[..., : tensor.shape[-2], :]


def _with_gaps(tensor: Tensor, dim: int, gap: float) -> Tensor:
    """Every element along dim followed by one of nobody's."""
    wide = torch.full([*tensor.shape[:dim], tensor.shape[dim] * 2, *tensor.shape[dim + 1 :]], gap)
    wide = wide.to(tensor)
    view = wide[(slice(None),) * dim + (slice(None, None, 2),)]
    view.copy_(tensor)
    return view
