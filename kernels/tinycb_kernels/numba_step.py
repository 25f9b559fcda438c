"""What a layer does between its two products, in one call: rotate, write to the cache, attend.

Three small steps, each a few microseconds of work for a batch that decodes, and as many again to call. Done
in one compiled function they are called once a layer. The parts are the ones that are also on their own:
`rotate` in tinycb/model/rope.py, `write_loop` in numba_kv_write.py, `attention_loops` in numba_attention.py;
a test holds the whole against them. In float32, but for what is written to the cache, and queries to match.

It checks nothing: that is for paged_step.py.
"""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .numba_attention import attention_loops
from .numba_tile import as_stored, rounded

PARTS_VERSION = "db3dda0a"  # see renew.py
ALONE = 32  # so few tokens are rotated and written by one thread: waking another takes longer

Array = NDArray[np.float32]


@njit(error_model="numpy")
def rotate_and_write(
    first: int,
    last: int,
    qkv: Array,
    cos: Array,
    sin: Array,
    slots: NDArray[np.int64],
    k_cache: NDArray[Any],
    v_cache: NDArray[Any],
) -> None:
    """Tokens `first` to `last`: their queries and keys rotated in place, keys and values to their slots.

    Plain multiplications and additions, which IEEE 754 rounds alike in a vector and in a single element.
    Queries become what the cache would make of them, though in float32.
    """
    half, block_size, kv_heads = cos.shape[1], k_cache.shape[1], k_cache.shape[2]
    heads = qkv.shape[1] - 2 * kv_heads
    for t in range(first, last):
        for head in range(heads + kv_heads):
            x = qkv[t, head]
            for i in range(half):
                left, right = x[i], x[half + i]
                x[i] = rounded(left * cos[t, i] - right * sin[t, i], k_cache)
                x[half + i] = rounded(right * cos[t, i] + left * sin[t, i], k_cache)
        if slots[t] >= 0:
            block, offset = slots[t] // block_size, slots[t] % block_size
            for head in range(kv_heads):
                key, value = qkv[t, heads + head], qkv[t, heads + kv_heads + head]
                for d in range(2 * half):
                    k_cache[block, offset, head, d] = as_stored(key[d], k_cache)
                    v_cache[block, offset, head, d] = as_stored(value[d], v_cache)


@njit(parallel=True, cache=True, error_model="numpy")
def step_loops(
    workers: int,
    qkv: Array,
    cos: Array,
    sin: Array,
    slots: NDArray[np.int64],
    k_cache: NDArray[Any],
    v_cache: NDArray[Any],
    block_table: NDArray[np.int32],
    kv_starts: NDArray[np.int32],
    q_starts: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    scale: np.float32,
    out: Array,
) -> None:
    """qkv (T, H + 2·KH, D) · cos, sin (T, D/2) · slots (T,) · caches (NB, BS, KH, D), as
    numba_vectors.py has 16-bit floats · block_table (R, MB) ·
    kv_starts (R,) zeros · q_starts (R+1,) · seq_lens (R,) · out (T, H, D). All contiguous."""
    tokens = len(qkv)
    if tokens <= ALONE:
        rotate_and_write(0, tokens, qkv, cos, sin, slots, k_cache, v_cache)
    else:
        for worker in prange(workers):
            first, last = worker * tokens // workers, (worker + 1) * tokens // workers
            rotate_and_write(first, last, qkv, cos, sin, slots, k_cache, v_cache)
    block_size, kv_heads, dims = k_cache.shape[1:]
    strides = (block_size * kv_heads * dims, kv_heads * dims, dims, 1)
    attention_loops(
        workers,
        qkv[:, : qkv.shape[1] - 2 * kv_heads],
        k_cache.reshape(-1),
        v_cache.reshape(-1),
        True,
        strides,
        strides,
        block_size,
        kv_heads,
        block_table,
        kv_starts,
        q_starts,
        seq_lens,
        scale,
        out,
    )
