"""SwiGLU's element-wise part: silu(gate) · up, with the same bits for a row whoever is in the batch.

torch's own `silu` takes the last few elements of each thread's share through another exponential than the
rest, so a row's bits depend on how many rows there are. On a CPU in fp32, one Numba loop does both halves of
the product instead; everywhere else torch does.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["silu_and_mul"]


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """(T, 2·I) → (T, I): silu of the left half times the right half."""
    inner = gate_up.shape[1] // 2
    if gate_up.device.type == "cpu" and gate_up.dtype == torch.float32:
        from tinycb.model.cpu_loops import silu_and_mul_loop

        out = torch.empty(gate_up.shape[0], inner)  # (T, I)
        silu_and_mul_loop(gate_up.numpy(), out.numpy())
        return out
    return F.silu(gate_up[:, :inner]) * gate_up[:, inner:]
