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
    """panels: (P, steps, LANES), flat, bytes with their scales where these are the same weight
    (numba_bytes.py). kept: as float32, smaller, or as pairs (numba_linear.py). outputs: N. inputs: K. bias:
    (P * LANES,) or empty. gated: whether N is half the weight's, and gates and ups lie in panels in turn."""

    panels: NDArray[Any] | tuple[NDArray[np.uint8], NDArray[np.float32]]
    kept: int
    outputs: int
    inputs: int
    bias: NDArray[np.float32]
    gated: bool

    @property
    def nbytes(self) -> int:
        parts = self.panels if isinstance(self.panels, tuple) else (self.panels,)
        return sum(part.nbytes for part in parts)


def pack_weight(weight: Tensor, bias: Tensor | None = None, *, gated: bool = False) -> PackedWeight:
    """(N, K) float32, bfloat16 or float16, and a bias (N,), on the CPU → panels of LANES outputs each.

    gated: the first half of the outputs are gates and the second half ups, which take turns then.
    A float32 weight that is bfloat16 or small integers in disguise takes no more memory than these; its
    products keep their bits. bfloat16 is multiplied as pairs where the processor can.
    """
    from .numba_vectors import HAS_PAIRS, LANES

    numba_linear = loops()
    outputs, inputs = len(weight) // 2 if gated else len(weight), weight.shape[1]
    order = row_order(outputs, LANES, gated=gated)
    kept_bias = NOTHING if bias is None else np.where(order >= 0, bias.float().numpy()[order], np.float32(0))
    rest = (outputs, inputs, kept_bias, gated)
    if weight.dtype == torch.float32:
        small = as_bytes(weight, order)
        if small is not None:
            return PackedWeight(small, numba_linear.SMALL, *rest)
        weight = as_bfloat16(weight)
        kept = numba_linear.FLOATS if weight.dtype == torch.float32 else numba_linear.SMALL
    else:
        is_pairs = HAS_PAIRS and weight.dtype == torch.bfloat16
        kept = numba_linear.PAIRS if is_pairs else numba_linear.SMALL
    together = 2 if kept == numba_linear.PAIRS else 1
    shape = (len(order) // LANES, -(-inputs // together), LANES, together)
    panels = zeros(shape, weight.dtype)  # (P, steps, LANES, together)
    for panel, rows in zip(panels, order.reshape(-1, LANES), strict=True):
        part = weight[torch.from_numpy(rows[rows >= 0])]  # (LANES or fewer, K)
        for i in range(together):
            numbers = part[:, i::together].T  # (steps or one less, LANES or fewer)
            panel[: len(numbers), : len(part), i] = numbers
    flat = as_flat(panels)
    return PackedWeight(flat if together == 1 else flat.view(np.int32), kept, *rest)


def row_order(outputs: int, lanes: int, *, gated: bool) -> NDArray[np.int64]:
    """The weight's row that each lane of the panels holds, (P * lanes,); -1 for none. Gated: a panel of gates
    and one of ups in turn."""
    order = np.full(-(-outputs // lanes) * lanes, -1)
    order[:outputs] = np.arange(outputs)
    if gated:
        panels = order.reshape(-1, 1, lanes)
        ups = np.where(panels >= 0, panels + outputs, -1)
        order = np.concatenate([panels, ups], axis=1).reshape(-1)
    return order


def as_bfloat16(weight: Tensor) -> Tensor:
    """A float32 weight in bfloat16, if that is exactly what it is; otherwise itself."""
    lower_half = 0xFFFF
    first, *rest = weight.view(torch.int32).split([1, len(weight) - 1])  # most say no at once
    is_bfloat16 = not any((part & lower_half).any() for part in (first, *rest))
    return weight.bfloat16() if is_bfloat16 else weight


def as_bytes(
    weight: Tensor, order: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]] | None:
    """A float32 weight as panels of bytes and their scales, if every bit of it comes back."""
    from .numba_bytes import bytes_loops
    from .numba_vectors import GROUP, LANES

    inputs = weight.shape[1]
    if inputs % GROUP:
        return None
    for rows in (order[:LANES], order):  # most say no at the first panel
        size = len(rows) * inputs
        panels = zeros((size,), torch.uint8).numpy()
        scales = zeros((size // GROUP * 2,), torch.float32).numpy()
        came_back = np.ones(torch.get_num_threads(), np.bool_)
        run_parallel(bytes_loops, weight.contiguous().numpy(), rows, panels, scales, came_back)
        if not came_back.all():
            return None
    return panels, scales


def packed_linear(
    x: Tensor,
    weight: PackedWeight,
    *,
    norm: tuple[Tensor, float] | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """x (T, K) → (T, N) float32: `f(x) @ weight.T + bias`, of a gated weight silu(gate) · up; plus residual.

    f is RMSNorm with `norm`'s weight (K,) and epsilon, or nothing. residual (T, N) and the norm's weight are
    float32. A weight of bfloat16 multiplies f(x) rounded to bfloat16 where the processor has an instruction
    for it, and adds up in float32.
    """
    tokens, width = x.shape
    if width != weight.inputs:
        raise ValueError(f"x: got {width} columns, expected {weight.inputs}")
    numba_linear = loops()
    padded = -(-tokens // numba_linear.ROWS) * numba_linear.ROWS  # whole tiles of the micro-kernel
    out = torch.empty(padded, weight.outputs, dtype=torch.float32)  # (T rounded up, N)
    run_parallel(
        numba_linear.linear_loops,
        x.float().contiguous().numpy(),
        NOTHING if norm is None else norm[0].numpy(),
        0.0 if norm is None else norm[1],
        weight.panels,
        weight.kept,
        -(-width // 2) if weight.kept == numba_linear.PAIRS else width,
        weight.gated,
        weight.bias,
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
