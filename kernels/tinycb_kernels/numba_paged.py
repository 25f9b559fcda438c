"""Path 3 on a CPU: attention through a block table, as compiled parallel loops.

Compare with numba_varlen.py: the same loops and the same arithmetic in the same order, so the two give the
same bits. The difference is where position `pos` of a request is stored: there at row `start + pos`, here in
block `block_table[r, pos // BS]`, at offset `pos % BS`.

The checks are in paged.py, the arithmetic in numba_softmax.py. Read next: numba_kv_write.py.
"""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from torch import Tensor

from .numba_softmax import MINUS_INFINITY, TILE, Array, attend_tile
from .numba_threads import as_flat, result_array, run_parallel
from .numba_tiles import find_request, load_queries, load_row, store_result


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
    """Hand arrays and strides to the loops. The arguments are those of `paged_attention`."""
    with result_array(out) as result:
        run_parallel(
            paged_loops,
            q.float().contiguous().numpy(),
            as_flat(k_cache),
            as_flat(v_cache),
            k_cache.stride(),
            v_cache.stride(),
            k_cache.shape[1],
            k_cache.shape[2],
            block_table.contiguous().numpy(),
            query_start_loc.contiguous().numpy(),
            seq_lens.contiguous().numpy(),
            np.float32(scale),
            result,
        )


@njit(parallel=True, cache=True)
def paged_loops(
    workers: int,
    q: Array,
    k: NDArray[Any],
    v: NDArray[Any],
    k_strides: tuple[int, int, int, int],
    v_strides: tuple[int, int, int, int],
    block_size: int,
    kv_heads: int,
    block_table: NDArray[np.int32],
    q_starts: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    scale: np.float32,
    out: Array,
) -> None:
    """q, out (T, H, D) contiguous · k, v flat, (NB, BS, KH, D) by their strides · the rest as in the call."""
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
            q_len, seq_len = q_starts[r + 1] - q_starts[r], seq_lens[r]
            first = (
                tile - q_starts[r] // tile_size - r
            ) * tile_size  # the tile's first query of the request's
            rows = min(tile_size, q_len - first) * group
            if rows <= 0:
                continue
            load_queries(queries, q, q_starts[r] + first, rows, kv_head * group, group)
            largest[:], total[:], acc[:] = MINUS_INFINITY, 0, 0
            visible = seq_len - q_len + first + 1  # keys of the first query; each later query sees one more
            kv_end = visible + rows // group - 1
            for start in range(0, kv_end, TILE):
                for j in range(min(TILE, kv_end - start)):
                    block = np.int64(block_table[r, (start + j) // block_size])
                    offset = (start + j) % block_size
                    k_offset = block * k_strides[0] + offset * k_strides[1] + kv_head * k_strides[2]
                    v_offset = block * v_strides[0] + offset * v_strides[1] + kv_head * v_strides[2]
                    load_row(keys, j, k, k_offset, k_strides[3])
                    load_row(values, j, v, v_offset, v_strides[3])
                attend_tile(
                    queries, keys, values, rows, group, visible - start, scale, scores, largest, total, acc
                )
            store_result(out, acc, total, q_starts[r] + first, rows, kv_head * group, group)
