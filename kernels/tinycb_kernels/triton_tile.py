"""A tile of queries and the keys that it walks over: the part that is the same on both Triton paths.

A tile is a few queries of one request, each with the query heads that read one KV head, so that a key is
loaded once for all of them: row i of the tile is query i // TILE_HEADS, head i % TILE_HEADS. A decoding
request with 4 heads in a group fills 4 rows, a prompt all of them.

`attend_keys` is the walk. Where position `pos` of the request lies is the one thing that tells paged keys
from packed ones, and it is said there, in one place. Tiles have sides that are powers of two; D and the
number of heads in a group need not be, so the rest of a tile is loaded as 0 and never stored.

Read next: triton_varlen.py.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from .triton_softmax import softmax_start, softmax_step


@triton.jit
def rows_of_tile(num_queries, first_head, GROUP: tl.constexpr, ROWS: tl.constexpr, TILE_HEADS: tl.constexpr):
    """For each of the ROWS: its query in the tile, its head in the group, and whether there is such a row."""
    row = tl.arange(0, ROWS)
    query = row // TILE_HEADS
    head = first_head + row % TILE_HEADS
    return query, head, (query < num_queries) & (head < GROUP)


@triton.jit
def places(token, head, strides, DIMS: tl.constexpr):
    """(ROWS, DIMS): how far into a tensor (T, H, D) of these strides each row's numbers are."""
    dim = tl.arange(0, DIMS).to(tl.int64)
    row = token.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]
    return row[:, None] + dim[None, :] * strides[2]


@triton.jit
def attend_tile(
    queries, kv_end, begin, end, factor,
    k, k_strides, v, v_strides, table, table_column,
    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KEYS: tl.constexpr, AHEAD: tl.constexpr,
    AS_FLOAT32: tl.constexpr,
):  # fmt: skip
    """Positions begin ... end - 1 of one request → largest (ROWS,), total (ROWS,), weighted (ROWS, DIMS).

    queries (ROWS, DIMS) · kv_end (ROWS,): each row sees the positions before its own, and never falls.

    Up to where the first row ends, all rows see all keys: there is nothing to compare, and whole tiles are
    loaded without a mask. What is left, mostly one tile, takes the comparisons.
    """
    ROWS: tl.constexpr = queries.shape[0]
    DIMS: tl.constexpr = queries.shape[1]
    seen_by_all = tl.minimum(tl.min(kv_end, axis=0), end)
    whole_end = begin + tl.maximum(seen_by_all - begin, 0) // KEYS * KEYS
    largest, total, weighted = softmax_start(ROWS, DIMS)
    largest, total, weighted = attend_keys(
        queries, kv_end, begin, whole_end, factor, largest, total, weighted,
        k, k_strides, v, v_strides, table, table_column,
        HEAD_DIM, BLOCK_SIZE, KEYS, AHEAD, AS_FLOAT32, MASKED=False,
    )  # fmt: skip
    return attend_keys(
        queries, kv_end, whole_end, end, factor, largest, total, weighted,
        k, k_strides, v, v_strides, table, table_column,
        HEAD_DIM, BLOCK_SIZE, KEYS, 0, AS_FLOAT32, MASKED=True,
    )  # fmt: skip


@triton.jit
def attend_keys(
    queries, kv_end, begin, end, factor, largest, total, weighted,
    k, k_strides, v, v_strides, table, table_column,
    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KEYS: tl.constexpr, AHEAD: tl.constexpr,
    AS_FLOAT32: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax for every KEYS positions of begin ... end - 1.

    k, v point at the request's KV head. Strides are (block, offset, head, dim), and BLOCK_SIZE 0 says that
    the keys are packed: no table, and position `pos` is row `pos`. MASKED: the last tile may be cut off, and
    rows may end before it does.
    """
    DIMS: tl.constexpr = queries.shape[1]
    # Triton counts the stages of a pipeline. Through a table each turn ahead is two: the table's, the keys'.
    STAGES: tl.constexpr = 1 + AHEAD if BLOCK_SIZE == 0 else 1 + 2 * AHEAD
    for start in tl.range(begin, end, KEYS, num_stages=STAGES):
        pos = start + tl.arange(0, KEYS)  # (KEYS,)
        exists = pos < end if MASKED else tl.full([KEYS], True, tl.int1)  # (KEYS,)
        if BLOCK_SIZE == 0:
            k_row = pos.to(tl.int64) * k_strides[1]  # (KEYS,)
            v_row = pos.to(tl.int64) * v_strides[1]  # (KEYS,)
        else:
            logical = (pos // BLOCK_SIZE).to(tl.int64)
            physical = tl.load(table + logical * table_column, mask=exists, other=0).to(tl.int64)
            offset = (pos % BLOCK_SIZE).to(tl.int64)
            k_row = physical * k_strides[0] + offset * k_strides[1]  # (KEYS,)
            v_row = physical * v_strides[0] + offset * v_strides[1]  # (KEYS,)
        keys = load_rows(k, k_row, k_strides[3], exists, HEAD_DIM, DIMS, MASKED)  # (KEYS, DIMS)
        values = load_rows(v, v_row, v_strides[3], exists, HEAD_DIM, DIMS, MASKED)  # (KEYS, DIMS)
        if AS_FLOAT32:
            keys, values = keys.to(tl.float32), values.to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")  # (ROWS, KEYS)
        if MASKED:
            scores = tl.where(pos[None, :] < kv_end[:, None], scores, float("-inf"))
        largest, total, weighted = softmax_step(scores, values, factor, largest, total, weighted)
    return largest, total, weighted


@triton.jit
def load_rows(
    x, row, dim_stride, exists, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """(KEYS, DIMS): the D numbers from x + row on, 0 where there are none. No mask where none is needed."""
    dim = tl.arange(0, DIMS).to(tl.int64)
    place = x + row[:, None] + dim[None, :] * dim_stride
    if MASKED or HEAD_DIM < DIMS:
        return tl.load(place, mask=exists[:, None] & (dim < HEAD_DIM)[None, :], other=0.0)
    return tl.load(place)
