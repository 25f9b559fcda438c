"""What a layer does between its two products, in one call: rotate, write to the cache, attend.

Three small steps, each a few microseconds of work for a batch that decodes, and as many again to call. Done
in one compiled function they are called once a layer. The parts are the ones that are also on their own:
`rotate` in tinycb/model/rope.py, `write_loop` in numba_kv_write.py, `attention_loops` in numba_attention.py;
a test holds the whole against them. Float32 throughout.

It checks nothing: that is for paged_step.py.
"""

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .numba_attention import attention_loops

PARTS_VERSION = "82661104"  # see renew.py
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
    k_cache: Array,
    v_cache: Array,
) -> None:
    """Tokens `first` to `last`: their queries and keys rotated in place, keys and values to their slots.

    Plain multiplications and additions, which IEEE 754 rounds alike in a vector and in a single element.
    """
    half, block_size, kv_heads = cos.shape[1], k_cache.shape[1], k_cache.shape[2]
    rotated = qkv.shape[1] - kv_heads  # H + KH: the values are left as they are
    for t in range(first, last):
        for head in range(rotated):
            x = qkv[t, head]
            for i in range(half):
                left, right = x[i], x[half + i]
                x[i] = left * cos[t, i] - right * sin[t, i]
                x[half + i] = right * cos[t, i] + left * sin[t, i]
        if slots[t] >= 0:
            block, offset = slots[t] // block_size, slots[t] % block_size
            for head in range(kv_heads):
                k_cache[block, offset, head] = qkv[t, rotated - kv_heads + head]
                v_cache[block, offset, head] = qkv[t, rotated + head]


@njit(parallel=True, cache=True, error_model="numpy")
def step_loops(
    workers: int,
    qkv: Array,
    cos: Array,
    sin: Array,
    slots: NDArray[np.int64],
    k_cache: Array,
    v_cache: Array,
    block_table: NDArray[np.int32],
    kv_starts: NDArray[np.int32],
    q_starts: NDArray[np.int32],
    seq_lens: NDArray[np.int32],
    scale: np.float32,
    out: Array,
) -> None:
    """qkv (T, H + 2·KH, D) · cos, sin (T, D/2) · slots (T,) · caches (NB, BS, KH, D) · block_table (R, MB) ·
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
