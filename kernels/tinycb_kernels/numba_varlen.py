"""Path 2 on a CPU: attention over packed requests, as compiled parallel loops.

The nest of loops is the textbook's: for each tile of queries and each KV head, for each tile of keys, for
each row one step of the online softmax. Threads take turns at the (query tile, KV head) pairs.

The checks are in varlen.py, the arithmetic in numba_softmax.py. Read next: numba_paged.py, which differs in
the lines that say where a key is stored, and in nothing else.
"""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from torch import Tensor

from .numba_softmax import MINUS_INFINITY, TILE, Array, attend_tile
from .numba_threads import as_flat, result_array, run_parallel
from .numba_tiles import find_request, load_queries, load_row, store_result


def varlen_numba(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, scale: float, out: Tensor
) -> None:
    """Hand arrays and strides to the loops. The arguments are those of `varlen_attention`."""
    with result_array(out) as result:
        run_parallel(
            varlen_loops,
            q.float().contiguous().numpy(),
            as_flat(k),
            as_flat(v),
            k.stride(),
            v.stride(),
            k.shape[1],
            cu_seqlens_q.contiguous().numpy(),
            cu_seqlens_k.contiguous().numpy(),
            np.float32(scale),
            result,
        )


@njit(parallel=True, cache=True)
def varlen_loops(
    workers: int,
    q: Array,
    k: NDArray[Any],
    v: NDArray[Any],
    k_strides: tuple[int, int, int],
    v_strides: tuple[int, int, int],
    kv_heads: int,
    q_starts: NDArray[np.int32],
    kv_starts: NDArray[np.int32],
    scale: np.float32,
    out: Array,
) -> None:
    """q, out (T, H, D) contiguous · k, v flat, (S, KH, D) by their strides · q_starts, kv_starts (R+1,)."""
    dim, group, requests = q.shape[2], q.shape[1] // kv_heads, len(q_starts) - 1
    tile_size = max(1, 48 // group)  # queries; 48 rows are enough to make up for bringing in the keys
    tiles = q_starts[requests] // tile_size + requests
    for worker in prange(workers):
        queries, acc = (
            np.empty((tile_size * group, dim), np.float32),
            np.empty((tile_size * group, dim), np.float32),
        )
        largest, total = np.empty(tile_size * group, np.float32), np.empty(tile_size * group, np.float32)
        keys, values = np.empty((TILE, dim), np.float32), np.empty((TILE, dim), np.float32)
        scores = np.empty(TILE, np.float32)
        for item in range(worker, tiles * kv_heads, workers):
            tile, kv_head = item // kv_heads, item % kv_heads
            r = find_request(q_starts, tile, tile_size)
            q_len, kv_len = q_starts[r + 1] - q_starts[r], kv_starts[r + 1] - kv_starts[r]
            first = (
                tile - q_starts[r] // tile_size - r
            ) * tile_size  # the tile's first query of the request's
            rows = min(tile_size, q_len - first) * group
            if rows <= 0:
                continue
            load_queries(queries, q, q_starts[r] + first, rows, kv_head * group, group)
            largest[:], total[:], acc[:] = MINUS_INFINITY, 0, 0
            visible = kv_len - q_len + first + 1  # keys of the first query; each later query sees one more
            kv_end = visible + rows // group - 1
            for start in range(0, kv_end, TILE):
                for j in range(min(TILE, kv_end - start)):
                    row = np.int64(kv_starts[r]) + start + j
                    load_row(keys, j, k, row * k_strides[0] + kv_head * k_strides[1], k_strides[2])
                    load_row(values, j, v, row * v_strides[0] + kv_head * v_strides[1], v_strides[2])
                attend_tile(
                    queries, keys, values, rows, group, visible - start, scale, scores, largest, total, acc
                )
            store_result(out, acc, total, q_starts[r] + first, rows, kv_head * group, group)
