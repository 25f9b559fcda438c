"""A linear layer whose weight is laid out once for the CPU's micro-kernel.

`packed_linear(x, pack_weight(w), …)` is `x @ w.T`, with a property that torch's product does not give: a
row's bits do not depend on the other rows. It is about as fast as oneDNN's with a packed weight: through the
products of SmolLM2's 30 layers 19 ms for 16 rows where oneDNN takes 26, and 259 for 256 where it takes 253
(fp32, two Zen 4 cores).

The loops are in numba_linear.py. There is no other backend: on a GPU torch's own product is the right one.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .backends import has_module
from .huge_pages import zeros
from .numba_threads import STORED_AS, as_flat, run_parallel

__all__ = ["PackedWeight", "can_pack", "pack_weight", "packed_linear"]


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `pack_weight` takes a weight on this device and of this dtype here."""
    return device.type == "cpu" and dtype in STORED_AS and has_module("numba")


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """panels: (N / LANES, K, LANES), flat, the outputs rounded up with zeros; bytes with their scales, where
    these are the same weight (numba_bytes.py). is_small: unless they are float32. outputs: N. inputs: K."""

    panels: NDArray[Any] | tuple[NDArray[np.uint8], NDArray[np.float32]]
    is_small: bool
    outputs: int
    inputs: int

    @property
    def nbytes(self) -> int:
        parts = self.panels if isinstance(self.panels, tuple) else (self.panels,)
        return sum(part.nbytes for part in parts)


def pack_weight(weight: Tensor) -> PackedWeight:
    """(N, K) float32, bfloat16 or float16, on the CPU → panels of LANES outputs each.

    A float32 weight that is bfloat16 or small integers in disguise takes no more memory than these; its
    products keep their bits.
    """
    from .numba_tile import LANES

    outputs, inputs = weight.shape
    if weight.dtype == torch.float32:
        small = as_bytes(weight)
        if small is not None:
            return PackedWeight(small, True, outputs, inputs)
        weight = as_bfloat16(weight)
    whole = outputs // LANES * LANES
    panels = zeros((-(-outputs // LANES), inputs, LANES), weight.dtype)  # (P, K, LANES)
    panels[: whole // LANES] = weight[:whole].view(-1, LANES, inputs).transpose(1, 2)
    if whole < outputs:
        panels[-1, :, : outputs - whole] = weight[whole:].T
    return PackedWeight(as_flat(panels), weight.dtype != torch.float32, outputs, inputs)


def as_bfloat16(weight: Tensor) -> Tensor:
    """A float32 weight in bfloat16, if that is exactly what it is; otherwise itself."""
    lower_half = 0xFFFF
    first, *rest = weight.view(torch.int32).split([1, len(weight) - 1])  # most say no at once
    is_bfloat16 = not any((part & lower_half).any() for part in (first, *rest))
    return weight.bfloat16() if is_bfloat16 else weight


def as_bytes(weight: Tensor) -> tuple[NDArray[np.uint8], NDArray[np.float32]] | None:
    """A float32 weight as panels of bytes and their scales, if every bit of it comes back."""
    from .numba_bytes import bytes_loops
    from .numba_tile import GROUP, LANES

    inputs = weight.shape[1]
    if inputs % GROUP:
        return None
    for rows in (weight[:1], weight):  # most say no at the first
        size = -(-len(rows) // LANES) * LANES * inputs
        panels = zeros((size,), torch.uint8).numpy()
        scales = zeros((size // GROUP * 2,), torch.float32).numpy()
        came_back = np.ones(torch.get_num_threads(), np.bool_)
        run_parallel(bytes_loops, rows.contiguous().numpy(), panels, scales, came_back)
        if not came_back.all():
            return None
    return panels, scales


def packed_linear(
    x: Tensor,
    weight: PackedWeight,
    *,
    bias: Tensor | None = None,
    norm: tuple[Tensor, float] | None = None,
    gated: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """x (T, K) → (T, N) float32: `f(x) @ weight.T + bias + residual`.

    f is RMSNorm with `norm`'s weight (K,) and epsilon, or, if `gated`, silu(left half) · right half of an x
    (T, 2·K); without either it does nothing. bias (N,), residual (T, N) and the norm's weight are float32.
    """
    tokens, width = x.shape
    if width != weight.inputs * (2 if gated else 1):
        raise ValueError(f"x: got {width} columns, expected {weight.inputs * (2 if gated else 1)}")
    numba_linear = loops()
    padded = -(-tokens // numba_linear.ROWS) * numba_linear.ROWS  # whole tiles of the micro-kernel
    out = torch.empty(padded, weight.outputs, dtype=torch.float32)  # (T rounded up, N)
    run_parallel(
        numba_linear.linear_loops,
        x.float().contiguous().numpy(),
        numba_linear.GATED if gated else numba_linear.PLAIN if norm is None else numba_linear.NORM,
        NOTHING if norm is None else norm[0].numpy(),
        0.0 if norm is None else norm[1],
        weight.panels,
        weight.is_small,
        weight.inputs,
        NOTHING if bias is None else bias.numpy(),
        NO_ROWS if residual is None else residual.numpy(),
        out.numpy(),
    )
    return out if tokens == padded else out[:tokens]


@cache
def loops() -> Any:
    """The module with the loops; what has torch to fall back on can be imported without Numba."""
    from . import numba_linear

    return numba_linear


NOTHING, NO_ROWS = np.empty(0, np.float32), np.empty((0, 0), np.float32)
