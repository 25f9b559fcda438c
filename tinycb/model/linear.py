"""A linear layer, with the norm that comes before it and the gate or the residual that comes after it.

On a CPU the weight is packed once and all of it is one call of compiled loops
(`tinycb_kernels/linear.py`), in which a row's bits do not depend on its neighbours. Sums are in fp32,
whatever dtype the weight is kept in. On a GPU, or without Numba, torch does it, and promises nothing about
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from tinycb_kernels.linear import can_pack, pack_weight, packed_linear

__all__ = ["Linear", "RMSNorm", "can_pack", "silu_and_mul"]


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Each row divided by the root of its mean square, times `weight` (E,)."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """(T, E) → (T, E)."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """(T, 2·I) → (T, I): silu of the left half times the right half, SwiGLU's element-wise part."""
    gate, up = gate_up.chunk(2, dim=1)  # (T, I) each
    return F.silu(gate) * up


class Linear:
    """x (T, in) → (T, out). weight: (out, in); bias: (out,) or None.

    gated: the weight is (2·out, in), gates above ups, and what comes out is `silu_and_mul` of its product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, gated: bool = False) -> None:
        can = can_pack(weight.device, weight.dtype)
        self.packed = pack_weight(weight, bias, gated=gated) if can else None
        self.weight = None if can else weight
        self.bias = None if can else bias
        self.gated = gated
        self.num_weights = weight.numel()

    @property
    def nbytes(self) -> int:
        """Memory that the weight takes. Packed, it may be less than it was (`tinycb_kernels/linear.py`)."""
        kept = self.packed or self.weight
        assert kept is not None
        return kept.nbytes

    def __call__(self, x: Tensor, *, norm: RMSNorm | None = None, residual: Tensor | None = None) -> Tensor:
        """The product of `norm(x)`, or of x; plus the residual (T, out)."""
        if self.packed is not None:
            before = None if norm is None else (norm.weight.float(), norm.eps)
            return packed_linear(x, self.packed, norm=before, residual=residual)
        assert self.weight is not None
        y = F.linear(x if norm is None else norm(x), self.weight, self.bias)
        if self.gated:
            y = silu_and_mul(y)
        return y if residual is None else residual + y
