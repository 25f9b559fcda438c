"""Say which keys a row sees, from two lists of offsets alone: a solution."""

from bisect import bisect_right


def kv_range(row: int, cu_seqlens_q: list[int], cu_seqlens_k: list[int]) -> tuple[int, int]:
    """The first key that a row of the batch sees, and the one after its last."""
    r = (
        bisect_right(cu_seqlens_q, row) - 1
    )  # of requests that begin here, the last: those before it are empty
    kv_begin = cu_seqlens_k[r]
    rows_after = cu_seqlens_q[r + 1] - 1 - row
    kv_end = cu_seqlens_k[r + 1] - rows_after
    return kv_begin, max(kv_begin, kv_end)
