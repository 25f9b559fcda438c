"""Path 3 in Triton: attention through a block table.

Compare with triton_varlen.py: the same programs and the same softmax. What differs is where position `pos` of
a request is: there at row `kv_begin + pos` of the packed keys, here in block `block_table[r, pos // BS]`, at
offset `pos % BS`. A tile of keys may start and end anywhere in a block, and may span many.

The checks are in paged.py. Read next: triton_kv_write.py.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from .backends import triton_is_interpreted
from .configs import attention_launch, padded_head_dim
from .triton_softmax import find_request, softmax_end, softmax_start, softmax_step


def paged_triton(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float,
    out: Tensor,
) -> None:
    """Launch the kernel. The arguments are those of `paged_attention`."""
    tokens, heads, dim = q.shape
    block_size, kv_heads, requests = k_cache.shape[1], k_cache.shape[2], len(seq_lens)
    group = heads // kv_heads
    interpreted = triton_is_interpreted()
    launch = attention_launch(q.dtype, dim, group * tokens // max(1, requests), interpreted)
    tile_heads = min(group, launch.rows)
    tile_queries = launch.rows // tile_heads
    grid = (tokens // tile_queries + requests, kv_heads * triton.cdiv(group, tile_heads))
    # The interpreter cuts off bits where it should round to bfloat16, so there it is torch that rounds.
    rounded_later = interpreted and q.dtype == torch.bfloat16
    result = torch.empty(q.shape, dtype=torch.float32) if rounded_later else out
    with torch.cuda.device_of(q):
        paged_kernel[grid](
            q, k_cache, v_cache, block_table, query_start_loc.contiguous(), seq_lens.contiguous(), result,
            *q.stride(), *k_cache.stride(), *v_cache.stride(), *result.stride(), *block_table.stride(),
            requests, block_table.shape[1], scale,
            BLOCK_SIZE=block_size, GROUP=group, HEAD_DIM=dim, DIMS=padded_head_dim(dim), ROWS=launch.rows,
            KEYS=launch.keys, TILE_HEADS=tile_heads, TILE_QUERIES=tile_queries, AS_FLOAT32=interpreted,
            num_warps=launch.num_warps, num_stages=launch.num_stages, enable_fp_fusion=True,
        )  # fmt: skip
    if result is not out:
        out.copy_(result)


@triton.jit(do_not_specialize=["requests", "max_blocks", "table_row"])
def paged_kernel(
    q, k_cache, v_cache, block_table, q_starts, seq_lens, out,
    q_token, q_head, q_dim, k_block, k_offset, k_head, k_dim, v_block, v_offset, v_head, v_dim,
    out_token, out_head, out_dim, table_row, table_column,
    requests, max_blocks, scale,
    BLOCK_SIZE: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, TILE_HEADS: tl.constexpr, TILE_QUERIES: tl.constexpr,
    AS_FLOAT32: tl.constexpr,
):  # fmt: skip
    """q, out (T, H, D) · caches (NB, BS, KH, D) · block_table (R, MB) · q_starts (R+1,) · seq_lens (R,)."""
    tile = tl.program_id(0)
    r = find_request(q_starts, tile, requests, TILE_QUERIES)
    q_begin = tl.load(q_starts + r)
    q_len = tl.load(q_starts + r + 1) - q_begin
    first = (tile - q_begin // TILE_QUERIES - r) * TILE_QUERIES
    if first >= q_len:
        return
    # A group of more heads than a tile has rows is shared out to several programs.
    GROUP_TILES: tl.constexpr = (GROUP + TILE_HEADS - 1) // TILE_HEADS
    kv_head = (tl.program_id(1) // GROUP_TILES).to(tl.int64)
    first_head = tl.program_id(1) % GROUP_TILES * TILE_HEADS

    row = tl.arange(0, ROWS)
    query = first + row // TILE_HEADS  # (ROWS,)
    head_in_group = first_head + row % TILE_HEADS  # (ROWS,)
    row_exists = (row < TILE_QUERIES * TILE_HEADS) & (query < q_len) & (head_in_group < GROUP)
    dim = tl.arange(0, DIMS).to(tl.int64)
    dim_exists = dim < HEAD_DIM
    in_q = row_exists[:, None] & dim_exists[None, :]  # (ROWS, DIMS)
    token = (q_begin + query).to(tl.int64)
    head = kv_head * GROUP + head_in_group
    q_place = token[:, None] * q_token + head[:, None] * q_head + dim[None, :] * q_dim
    queries = tl.load(q + q_place, mask=in_q, other=0.0)  # (ROWS, DIMS)
    if AS_FLOAT32:
        queries = queries.to(tl.float32)

    seq_len = tl.load(seq_lens + r)
    kv_end = seq_len - q_len + query + 1  # (ROWS,)
    tile_kv_end = seq_len - q_len + tl.minimum(first + TILE_QUERIES, q_len)  # of its last query
    table = block_table + tl.cast(r, tl.int64) * table_row
    largest, total, weighted = softmax_start(ROWS, DIMS)
    for start in range(0, tile_kv_end, KEYS):
        pos = start + tl.arange(0, KEYS)
        logical = pos // BLOCK_SIZE
        pos_exists = (pos < tile_kv_end) & (logical < max_blocks)
        physical = tl.load(table + logical.to(tl.int64) * table_column, mask=pos_exists, other=0).to(tl.int64)
        offset = (pos % BLOCK_SIZE).to(tl.int64)
        k_row = physical * k_block + offset * k_offset + kv_head * k_head  # (KEYS,)
        keys = tl.load(
            k_cache + k_row[None, :] + dim[:, None] * k_dim,
            mask=pos_exists[None, :] & dim_exists[:, None],
            other=0.0,
        )  # (DIMS, KEYS)
        v_row = physical * v_block + offset * v_offset + kv_head * v_head  # (KEYS,)
        values = tl.load(
            v_cache + v_row[:, None] + dim[None, :] * v_dim,
            mask=pos_exists[:, None] & dim_exists[None, :],
            other=0.0,
        )  # (KEYS, DIMS)
        if AS_FLOAT32:
            keys, values = keys.to(tl.float32), values.to(tl.float32)
        visible = pos[None, :] < kv_end[:, None]  # (ROWS, KEYS)
        largest, total, weighted = softmax_step(
            queries, keys, values, visible, scale, largest, total, weighted
        )

    result = softmax_end(total, weighted).to(out.dtype.element_ty)  # (ROWS, DIMS)
    out_place = token[:, None] * out_token + head[:, None] * out_head + dim[None, :] * out_dim
    tl.store(out + out_place, result, mask=in_q)
