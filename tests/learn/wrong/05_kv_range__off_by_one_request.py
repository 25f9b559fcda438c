"""a row sees the keys of another request"""

from bisect import bisect_left


def kv_range(row, cu_seqlens_q, cu_seqlens_k):
    """A request's first row is taken for the last of the one before."""
    r = max(0, bisect_left(cu_seqlens_q, row) - 1)
    kv_begin = cu_seqlens_k[r]
    return kv_begin, max(kv_begin, cu_seqlens_k[r + 1] - (cu_seqlens_q[r + 1] - 1 - row))
