"""A decoder layer's rotation, cache write and paged attention as one call, for a CPU.

For a model's inner loop: the index tensors are turned into arrays once a step, and a layer then makes one
call. The loops are in numba_step.py; `write_kv` and `paged_attention` are the same thing in separate calls.
"""

import numpy as np
import torch
from torch import Tensor

from .backends import choose_backend
from .numba_threads import STORED_AS, run_parallel

__all__ = ["PagedStep", "can_step"]


def can_step(backend: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `PagedStep` serves this backend on this device, for a cache of this dtype."""
    return dtype in STORED_AS and device.type == "cpu" and choose_backend(backend, device) == "numba"


class PagedStep:
    """One step's index tensors: slot_mapping (T,) int64, block_table (R, MB), query_start_loc (R+1,) and
    seq_lens (R,) int32. They are not checked; `paged_attention` says what they must be."""

    def __init__(
        self, slot_mapping: Tensor, block_table: Tensor, query_start_loc: Tensor, seq_lens: Tensor
    ) -> None:
        self.slots = slot_mapping.contiguous().numpy()
        self.batch = (
            block_table.contiguous().numpy(),
            np.zeros(len(seq_lens), np.int32),
            query_start_loc.contiguous().numpy(),
            seq_lens.contiguous().numpy(),
        )

    def __call__(self, qkv: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        """qkv (T, H + 2·KH, D), of which queries and keys are rotated in place · cos, sin (T, D/2) · caches
        (NB, BS, KH, D), written to · returns (T, H, D). All contiguous, and float32 but for the caches."""
        from .numba_step import step_loops

        tokens, heads, dims = qkv.shape
        out = torch.empty(tokens, heads - 2 * k_cache.shape[2], dims, dtype=torch.float32)  # (T, H, D)
        run_parallel(
            step_loops,
            qkv.numpy(),
            cos.numpy(),
            sin.numpy(),
            self.slots,
            k_cache.view(STORED_AS[k_cache.dtype]).numpy(),
            v_cache.view(STORED_AS[v_cache.dtype]).numpy(),
            *self.batch,
            np.float32(dims**-0.5),
            out.numpy(),
        )
        return out
