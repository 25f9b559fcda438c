"""A linear layer whose weight is laid out once for the CPU's micro-kernel.

`packed_linear(x, pack_weight(w), …)` is `x @ w.T`, with a property that torch's product does not give: a
row's bits do not depend on the other rows. It is about as fast as oneDNN's with a packed weight: through the
products of SmolLM2's 30 layers 24 ms for 16 rows where oneDNN takes 27, and 265 for 256 where it takes 254
(fp32, two Zen 4 cores).

The loops are in numba_linear.py. There is no other backend: on a GPU torch's own product is the right one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .backends import has_module
from .numba_threads import STORED_AS, as_flat, run_parallel

__all__ = ["PackedWeight", "can_pack", "pack_weight", "packed_linear"]


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `pack_weight` takes a weight on this device and of this dtype here."""
    return device.type == "cpu" and dtype in STORED_AS and has_module("numba")


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """panels: (N / LANES, K, LANES), flat, the outputs rounded up with zeros. outputs: N. inputs: K."""

    panels: NDArray[Any]
    outputs: int
    inputs: int


def pack_weight(weight: Tensor) -> PackedWeight:
    """(N, K) float32, bfloat16 or float16, on the CPU → panels of LANES outputs each."""
    from .numba_tile import LANES

    outputs, inputs = weight.shape
    whole = outputs // LANES * LANES
    panels = weight.new_zeros(-(-outputs // LANES), inputs, LANES)  # (P, K, LANES)
    panels[: whole // LANES] = weight[:whole].view(-1, LANES, inputs).transpose(1, 2)
    if whole < outputs:
        panels[-1, :, : outputs - whole] = weight[whole:].T
    return PackedWeight(as_flat(panels), outputs, inputs)


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
    from .numba_linear import GATED, NORM, PLAIN, linear_loops
    from .numba_tile import ROWS

    tokens, width = x.shape
    if width != weight.inputs * (2 if gated else 1):
        raise ValueError(f"x: got {width} columns, expected {weight.inputs * (2 if gated else 1)}")
    padded = -(-tokens // ROWS) * ROWS  # whole tiles of the micro-kernel
    out = torch.empty(padded, weight.outputs, dtype=torch.float32)  # (T rounded up, N)
    norm_weight, eps = norm or (NOTHING, 0.0)
    run_parallel(
        linear_loops,
        x.float().contiguous().numpy(),
        GATED if gated else PLAIN if norm is None else NORM,
        norm_weight.numpy(),
        eps,
        weight.panels,
        weight.inputs,
        (NOTHING if bias is None else bias).numpy(),
        (NO_ROWS if residual is None else residual).numpy(),
        out.numpy(),
    )
    return out[:tokens]


NOTHING, NO_ROWS = torch.from_numpy(np.empty(0, np.float32)), torch.from_numpy(np.empty((0, 0), np.float32))
