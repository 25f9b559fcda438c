"""Path 2 in Triton: attention over packed requests, with two comparisons in place of the mask.

A program takes one tile of one request's queries and one KV head. All G query heads that read this KV head
are in the tile, so its keys are loaded once for all of them: row i of the tile is query i // G, head i % G.

Tiles have sides that are powers of two; D and G need not be, so the rest of a tile is loaded as 0 and never
stored. The checks are in varlen.py. Read next: triton_paged.py.
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


def varlen_triton(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, scale: float, out: Tensor
) -> None:
    """Launch the kernel. The arguments are those of `varlen_attention`."""
    tokens, heads, dim = q.shape
    kv_heads, requests = k.shape[1], len(cu_seqlens_q) - 1
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
        varlen_kernel[grid](
            q, k, v, cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous(), result,
            *q.stride(), *k.stride(), *v.stride(), *result.stride(), requests, scale,
            GROUP=group, HEAD_DIM=dim, DIMS=padded_head_dim(dim), ROWS=launch.rows, KEYS=launch.keys,
            TILE_HEADS=tile_heads, TILE_QUERIES=tile_queries, AS_FLOAT32=interpreted,
            num_warps=launch.num_warps, num_stages=launch.num_stages, enable_fp_fusion=True,
        )  # fmt: skip
    if result is not out:
        out.copy_(result)


@triton.jit(do_not_specialize=["requests"])
def varlen_kernel(
    q, k, v, q_starts, kv_starts, out,
    q_token, q_head, q_dim, k_token, k_head, k_dim, v_token, v_head, v_dim, out_token, out_head, out_dim,
    requests, scale,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    TILE_HEADS: tl.constexpr, TILE_QUERIES: tl.constexpr, AS_FLOAT32: tl.constexpr,
):  # fmt: skip
    """q, out (T, H, D) · k, v (S, KH, D) · q_starts, kv_starts (R+1,) · the middle line: strides."""
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

    kv_begin = tl.load(kv_starts + r)
    kv_len = tl.load(kv_starts + r + 1) - kv_begin
    kv_end = kv_begin + kv_len - q_len + query + 1  # (ROWS,)
    tile_kv_end = kv_begin + kv_len - q_len + tl.minimum(first + TILE_QUERIES, q_len)  # of its last query
    largest, total, weighted = softmax_start(ROWS, DIMS)
    for start in range(kv_begin, tile_kv_end, KEYS):
        kv = start + tl.arange(0, KEYS)
        kv_exists = kv < tile_kv_end
        kv_token = kv.to(tl.int64)
        k_place = kv_token[None, :] * k_token + kv_head * k_head + dim[:, None] * k_dim
        keys = tl.load(k + k_place, mask=kv_exists[None, :] & dim_exists[:, None], other=0.0)  # (DIMS, KEYS)
        v_place = kv_token[:, None] * v_token + kv_head * v_head + dim[None, :] * v_dim
        values = tl.load(
            v + v_place, mask=kv_exists[:, None] & dim_exists[None, :], other=0.0
        )  # (KEYS, DIMS)
        if AS_FLOAT32:
            keys, values = keys.to(tl.float32), values.to(tl.float32)
        visible = (kv[None, :] >= kv_begin) & (kv[None, :] < kv_end[:, None])  # (ROWS, KEYS): the whole mask
        largest, total, weighted = softmax_step(
            queries, keys, values, visible, scale, largest, total, weighted
        )

    result = softmax_end(total, weighted).to(out.dtype.element_ty)  # (ROWS, DIMS)
    out_place = token[:, None] * out_token + head[:, None] * out_head + dim[None, :] * out_dim
    tl.store(out + out_place, result, mask=in_q)
