"""Say which keys a row sees, from two lists of offsets alone.

A packed batch has rows and keys, request after request. The rows of request `r` are those from
`cu_seqlens_q[r]` to `cu_seqlens_q[r + 1] - 1`, and its keys are those from `cu_seqlens_k[r]` to
`cu_seqlens_k[r + 1] - 1`. A request's last row sees all of its keys, and each row before it one key less.

Return `kv_begin` and `kv_end`: the row sees keys `kv_begin … kv_end - 1`. A request may have no rows, and it
may have more rows than keys; for a row that sees nothing, return a `kv_end` that is equal to `kv_begin`.
"""


def kv_range(row: int, cu_seqlens_q: list[int], cu_seqlens_k: list[int]) -> tuple[int, int]:
    """The first key that a row of the batch sees, and the one after its last."""
    raise NotImplementedError("write the body of kv_range")
