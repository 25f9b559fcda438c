"""From the arguments of `varlen_attention` and `paged_attention` to those of the compiled loops.

There is one nest of loops for both, because packed keys are paged keys in the simplest of ways: one block, as
large as all of k, that every request shares and in which each begins at an offset of its own. Hence the two
paths give the same bits.

No arithmetic here. Read next: numba_threads.py.
"""

import numpy as np
from torch import Tensor

from .numba_attention import attention_loops
from .numba_threads import as_flat, as_float32, result_array, run_parallel


def varlen_numba(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, scale: float, out: Tensor
) -> None:
    """The arguments of `varlen_attention`: (S, KH, D) becomes a cache (1, S, KH, D)."""
    starts = cu_seqlens_k.numpy()  # (R+1,)
    block_table = np.zeros((len(starts) - 1, 1), np.int32)
    with result_array(out) as result:
        run_parallel(
            attention_loops,
            as_float32(q),
            as_flat(k),
            as_flat(v),
            False,
            (0, *k.stride()),
            (0, *v.stride()),
            max(1, len(k)),
            k.shape[1],
            block_table,
            np.ascontiguousarray(starts[:-1]),
            cu_seqlens_q.contiguous().numpy(),
            np.diff(starts),
            np.float32(scale),
            result,
        )


def paged_numba(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float,
    out: Tensor,
) -> None:
    """The arguments of `paged_attention`: every request begins at the start of its first block."""
    with result_array(out) as result:
        run_parallel(
            attention_loops,
            as_float32(q),
            as_flat(k_cache),
            as_flat(v_cache),
            True,
            k_cache.stride(),
            v_cache.stride(),
            k_cache.shape[1],
            k_cache.shape[2],
            block_table.contiguous().numpy(),
            np.zeros(len(seq_lens), np.int32),
            query_start_loc.contiguous().numpy(),
            seq_lens.contiguous().numpy(),
            np.float32(scale),
            result,
        )
