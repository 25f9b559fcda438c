"""a row does not see all of its own past"""

from bisect import bisect_right


def kv_range(row, cu_seqlens_q, cu_seqlens_k):
    """Counts from the request's first key, as if it had no past."""
    r = bisect_right(cu_seqlens_q, row) - 1
    kv_begin = cu_seqlens_k[r]
    return kv_begin, min(cu_seqlens_k[r + 1], kv_begin + row - cu_seqlens_q[r] + 1)
