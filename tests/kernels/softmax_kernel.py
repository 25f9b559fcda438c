"""A Triton kernel for one test: two steps of the shared online softmax, with any mask."""

import triton
import triton.language as tl

from tinycb_kernels.triton_softmax import softmax_end, softmax_start, softmax_step


@triton.jit
def two_tiles(q, k, v, visible, out, factor):
    """q (16, 16) · k, v (32, 16) · visible (16, 32) · out (16, 16)."""
    i = tl.arange(0, 16)
    queries = tl.load(q + i[:, None] * 16 + i[None, :])
    largest, total, weighted = softmax_start(16, 16)
    for start in range(0, 32, 16):
        keys = tl.load(k + (start + i)[None, :] * 16 + i[:, None])
        values = tl.load(v + (start + i)[:, None] * 16 + i[None, :])
        seen = tl.load(visible + i[:, None] * 32 + (start + i)[None, :]) != 0
        scores = tl.where(seen, tl.dot(queries, keys, input_precision="ieee"), float("-inf"))
        largest, total, weighted = softmax_step(scores, values, factor, largest, total, weighted)
    tl.store(out + i[:, None] * 16 + i[None, :], softmax_end(total, weighted))
