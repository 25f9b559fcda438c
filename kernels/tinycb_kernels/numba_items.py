"""Which thread does what part of a step's attention: a list that is laid out anew for each call.

The parts are of very different sizes, a prompt's chunk beside a request that decodes, so that to deal them
out in turn would leave a thread waiting.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .numba_softmax import TILE

FEW = 6  # queries: fewer do not take less, for a vector is not full, or memory is what takes the time


@njit(error_model="numpy")
def cost(queries: int, visible: int) -> int:
    """About what a KV head of so many queries takes, of which the first sees `visible` keys."""
    return max(queries, FEW) * visible + TILE


@njit(error_model="numpy")
def share_out(
    workers: int,
    tile_size: int,
    kv_heads: int,
    in_place: bool,
    q_starts: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
) -> NDArray[np.int64]:
    """The work items, (items, 5): request, first query, first KV head, how many KV heads, and whose it is.

    An item is up to tile_size queries of a request, so that none straddles two requests, and one KV head.
    Read in place, a request's single query has all its heads in one item, unless that would be so much of the
    whole that a thread might wait for it. Each item goes to the thread that has least to do so far.
    """
    tiles, whole = 0, 0
    for r in range(len(seq_lens)):
        q_len = q_starts[r + 1] - q_starts[r]
        tiles += (q_len + tile_size - 1) // tile_size
        whole += kv_heads * cost(q_len, seq_lens[r] - q_len + 1) if q_len else 0
    items, loads, n = np.empty((tiles * kv_heads, 5), np.int64), np.zeros(workers, np.int64), 0
    for r in range(len(seq_lens) - 1, -1, -1):  # the newest first: these have the most queries
        q_len = q_starts[r + 1] - q_starts[r]
        is_small = kv_heads * cost(q_len, seq_lens[r] - q_len + 1) * 2 * workers <= whole
        heads = kv_heads if in_place and q_len == 1 and is_small else 1
        for first in range((q_len - 1) // tile_size * tile_size, -1, -tile_size):
            item_cost = heads * cost(min(tile_size, q_len - first), seq_lens[r] - q_len + first + 1)
            for head in range(0, kv_heads, heads):
                worker = np.argmin(loads)
                loads[worker] += item_cost
                item = items[n]
                item[0], item[1], item[2], item[3], item[4] = r, first, head, heads, worker
                n += 1
    return items[:n]


@njit(error_model="numpy")
def next_request(items: NDArray[np.int64], item: int) -> np.int64:
    """The request of the item that the same thread does next; of this one if it is the last."""
    for after in range(item + 1, len(items)):
        if items[after, 4] == items[item, 4]:
            return items[after, 0]
    return items[item, 0]
