"""Path 2 in Triton: attention over packed requests, with two comparisons in place of the mask.

A program takes one tile of one request's queries and one KV head. Nobody tells it which request: it finds it
in the offsets. Then it walks over the request's keys (triton_tile.py) from the first to the last that its
queries may see.

The checks are in varlen.py. Read next: triton_plan.py, where the host tells a program all of it.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from .backends import triton_is_interpreted
from .configs import REGISTERS_FEW, REGISTERS_MANY, attention_launch, padded_head_dim
from .triton_softmax import exp2_factor, softmax_end
from .triton_tile import attend_tile, places, rows_of_tile


def varlen_triton(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, scale: float, out: Tensor
) -> None:
    """Launch the kernel. The arguments are those of `varlen_attention`."""
    tokens, heads, dim = q.shape
    kv_heads, requests = k.shape[1], len(cu_seqlens_q) - 1
    group = heads // kv_heads
    interpreted = triton_is_interpreted()
    launch = attention_launch(q.dtype, dim, interpreted)
    # By the average request: the lengths are on the device, and asking for them would wait for the device.
    tile = launch.few if group * tokens <= launch.few.rows * requests else launch.many
    tile_heads = min(group, tile.rows)
    tile_queries = tile.rows // tile_heads
    grid = (tokens // tile_queries + requests, kv_heads * triton.cdiv(group, tile_heads))
    # The interpreter cuts off bits where it should round to bfloat16, so there it is torch that rounds.
    rounded_later = interpreted and q.dtype == torch.bfloat16
    result = torch.empty(q.shape, dtype=torch.float32) if rounded_later else out
    with torch.cuda.device_of(q):
        varlen_kernel[grid](
            q, k, v, cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous(), result,
            q.stride(), (0, *k.stride()), (0, *v.stride()), result.stride(), requests, exp2_factor(scale),
            GROUP=group, HEAD_DIM=dim, DIMS=padded_head_dim(dim), NEGATIVE_SCALE=scale < 0,
            AS_FLOAT32=interpreted, TILE=tile.constants,
            num_warps=launch.num_warps, maxnreg=REGISTERS_FEW if tile == launch.few else REGISTERS_MANY,
            enable_fp_fusion=True,
        )  # fmt: skip
    if result is not out:
        out.copy_(result)


@triton.jit(do_not_specialize=["requests"])
def varlen_kernel(
    q, k, v, q_starts, kv_starts, out, q_strides, k_strides, v_strides, out_strides, requests, factor,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, NEGATIVE_SCALE: tl.constexpr,
    AS_FLOAT32: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """q, out (T, H, D) · k, v (S, KH, D), strides with a 0 before them · q_starts, kv_starts (R+1,) ·
    TILE: (rows, keys, ahead)."""
    ROWS: tl.constexpr = TILE[0]
    TILE_HEADS: tl.constexpr = min(GROUP, ROWS)
    TILE_QUERIES: tl.constexpr = ROWS // TILE_HEADS
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

    num_queries = tl.minimum(TILE_QUERIES, q_len - first)
    query, head_in_group, row_exists = rows_of_tile(num_queries, first_head, GROUP, ROWS, TILE_HEADS)
    token = q_begin + first + query  # (ROWS,)
    head = kv_head * GROUP + head_in_group  # (ROWS,)
    in_q = row_exists[:, None] & (tl.arange(0, DIMS) < HEAD_DIM)[None, :]  # (ROWS, DIMS)
    queries = tl.load(q + places(token, head, q_strides, DIMS), mask=in_q, other=0.0)  # (ROWS, DIMS)
    if AS_FLOAT32:
        queries = queries.to(tl.float32)
    if NEGATIVE_SCALE:
        queries = -queries

    kv_begin = tl.load(kv_starts + r)
    kv_len = tl.load(kv_starts + r + 1) - kv_begin
    kv_end = kv_len - q_len + first + query + 1  # (ROWS,): positions, counted from the request's first key
    tile_end = kv_len - q_len + first + num_queries  # of its last query
    k_begin = k + kv_begin.to(tl.int64) * k_strides[1] + kv_head * k_strides[2]
    v_begin = v + kv_begin.to(tl.int64) * v_strides[1] + kv_head * v_strides[2]
    _, total, weighted = attend_tile(
        queries, kv_end, 0, tile_end, factor, k_begin, k_strides, v_begin, v_strides, None, None,
        HEAD_DIM, 0, TILE[1], TILE[2], AS_FLOAT32,
    )  # fmt: skip
    result = softmax_end(total, weighted).to(out.dtype.element_ty)  # (ROWS, DIMS)
    tl.store(out + places(token, head, out_strides, DIMS), result, mask=in_q)


@triton.jit
def find_request(starts, tile, requests, TILE_QUERIES: tl.constexpr):
    """The request whose queries are in tile number `tile`, by binary search in the (R+1,) offsets.

    Every request's queries are cut into tiles of its own, so that no tile straddles two requests. Its first
    tile has the number starts[r] // TILE_QUERIES + r; that leaves each request at least as many numbers as it
    needs, and the numbers that it does not need hold no queries.

        TILE_QUERIES 4, starts [0, 3, 9, 10]    r=0: tile 0    r=1: tiles 1, 2    r=2: tile 4    (3 is empty)
    """
    low = 0
    high = requests
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // TILE_QUERIES + middle <= tile:
            low = middle
        else:
            high = middle
    return low
