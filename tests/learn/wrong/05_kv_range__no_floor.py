"""the keys end before they begin"""

from bisect import bisect_right


def kv_range(row, cu_seqlens_q, cu_seqlens_k):
    """Forgets that a request may have more rows than keys."""
    r = bisect_right(cu_seqlens_q, row) - 1
    return cu_seqlens_k[r], cu_seqlens_k[r + 1] - (cu_seqlens_q[r + 1] - 1 - row)
