"""Path 3 in Triton: attention through a block table, prompts and single tokens in one launch.

The host has cut the work into items (triton_plan.py): some queries of one request and a range of its keys. A
program takes one item for one KV head. It loads its queries, walks over its range (triton_tile.py), and if
the range is all that its queries may see, it is done. A long request's keys are several items: each program
then stores its three running values of the online softmax, and `merge_kernel` (triton_merge.py) makes one
result of them.

The checks are in paged.py. Read next: triton_merge.py.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from .backends import triton_is_interpreted
from .configs import REGISTERS_FEW, REGISTERS_MANY, padded_head_dim
from .triton_merge import merge_parts
from .triton_plan import PagedPlan
from .triton_softmax import exp2_factor, softmax_end
from .triton_tile import attend_tile, places, rows_of_tile


def paged_triton(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float,
    out: Tensor,
    plan: PagedPlan,
) -> None:
    """Launch the kernels. The arguments are those of `paged_attention`."""
    heads, dim = q.shape[1:]
    kv_heads, launch, interpreted = k_cache.shape[2], plan.launch, triton_is_interpreted()
    parts = torch.empty((plan.num_part_rows, heads, dim), dtype=torch.float32, device=q.device)
    sums = torch.empty((plan.num_part_rows, heads, 2), dtype=torch.float32, device=q.device)
    # The interpreter cuts off bits where it should round to bfloat16, so there it is torch that rounds.
    rounded_later = interpreted and q.dtype == torch.bfloat16
    result = torch.empty(q.shape, dtype=torch.float32) if rounded_later else out
    with torch.cuda.device_of(q):
        paged_kernel[(len(plan.items) * kv_heads,)](
            q, k_cache, v_cache, block_table, query_start_loc.contiguous(), seq_lens.contiguous(),
            plan.items, result, parts, sums,
            q.stride(), k_cache.stride(), v_cache.stride(), result.stride(), *block_table.stride(),
            exp2_factor(scale),
            HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=dim, DIMS=padded_head_dim(dim),
            BLOCK_SIZE=k_cache.shape[1], NEGATIVE_SCALE=scale < 0, AS_FLOAT32=interpreted,
            FEW=launch.few.constants, MANY=launch.many.constants if plan.has_many else None,
            num_warps=launch.num_warps, maxnreg=REGISTERS_MANY if plan.has_many else REGISTERS_FEW,
            enable_fp_fusion=True,
        )  # fmt: skip
        if len(plan.merges):
            merge_parts(parts, sums, plan.merges, scale, result)
    if result is not out:
        out.copy_(result)


@triton.jit(do_not_specialize=["table_row", "table_column"])
def paged_kernel(
    q, k_cache, v_cache, block_table, query_start_loc, seq_lens, items, out, parts, sums,
    q_strides, k_strides, v_strides, out_strides, table_row, table_column, factor,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, NEGATIVE_SCALE: tl.constexpr, AS_FLOAT32: tl.constexpr,
    FEW: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """q, out (T, H, D) · caches (NB, BS, KH, D) · block_table (R, MB) · query_start_loc (R+1,) ·
    seq_lens (R,) · items (number, 8) · parts, sums: see `merge_kernel`.

    FEW, MANY: (rows, keys, ahead) of a tile. The item's last number says which of the two it is cut for.
    """
    item = items + tl.program_id(0) // KV_HEADS * 8
    kv_head = (tl.program_id(0) % KV_HEADS).to(tl.int64)
    if tl.load(item + 2) == 0:  # no queries: a place in the plan that nobody took
        return
    if MANY is not None:  # noqa: SIM102  known when compiled, the next line when run
        if tl.load(item + 7) != 0:
            attend_item(
                q, k_cache, v_cache, block_table, query_start_loc, seq_lens, item, kv_head, out, parts, sums,
                q_strides, k_strides, v_strides, out_strides, table_row, table_column, factor,
                HEADS, HEADS // KV_HEADS, HEAD_DIM, DIMS, BLOCK_SIZE, NEGATIVE_SCALE, AS_FLOAT32,
                MANY[0], MANY[1], MANY[2],
            )  # fmt: skip
            return
    attend_item(
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, item, kv_head, out, parts, sums,
        q_strides, k_strides, v_strides, out_strides, table_row, table_column, factor,
        HEADS, HEADS // KV_HEADS, HEAD_DIM, DIMS, BLOCK_SIZE, NEGATIVE_SCALE, AS_FLOAT32,
        FEW[0], FEW[1], FEW[2],
    )  # fmt: skip


@triton.jit
def attend_item(
    q, k_cache, v_cache, block_table, query_start_loc, seq_lens, item, kv_head, out, parts, sums,
    q_strides, k_strides, v_strides, out_strides, table_row, table_column, factor,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, NEGATIVE_SCALE: tl.constexpr, AS_FLOAT32: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """One item of the plan, for one KV head: from its queries to `out`, or to its part of them."""
    r = tl.load(item).to(tl.int64)
    first_token, num_queries, first_head = tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
    begin, end, part_row = tl.load(item + 4), tl.load(item + 5), tl.load(item + 6).to(tl.int64)

    query, head_in_group, row_exists = rows_of_tile(num_queries, first_head, GROUP, ROWS, min(GROUP, ROWS))
    token = first_token + query  # (ROWS,)
    head = kv_head * GROUP + head_in_group  # (ROWS,)
    in_q = row_exists[:, None] & (tl.arange(0, DIMS) < HEAD_DIM)[None, :]  # (ROWS, DIMS)
    queries = tl.load(q + places(token, head, q_strides, DIMS), mask=in_q, other=0.0)  # (ROWS, DIMS)
    if AS_FLOAT32:
        queries = queries.to(tl.float32)
    if NEGATIVE_SCALE:
        queries = -queries

    # The last of a request's queries sees all of its keys, each query before it one less.
    seq_len = tl.load(seq_lens + r)
    kv_end = seq_len - tl.load(query_start_loc + r + 1) + token + 1  # (ROWS,)
    largest, total, weighted = attend_tile(
        queries, kv_end, begin, tl.minimum(end, seq_len), factor,
        k_cache + kv_head * k_strides[2], k_strides, v_cache + kv_head * v_strides[2], v_strides,
        block_table + r * table_row, table_column,
        HEAD_DIM, BLOCK_SIZE, KEYS, AHEAD, AS_FLOAT32,
    )  # fmt: skip

    if part_row < 0:  # these are all the keys
        result = softmax_end(total, weighted).to(out.dtype.element_ty)  # (ROWS, DIMS)
        tl.store(out + places(token, head, out_strides, DIMS), result, mask=in_q)
    else:
        row = (part_row + query) * HEADS + head  # (ROWS,)
        tl.store(parts + row[:, None] * HEAD_DIM + tl.arange(0, DIMS)[None, :], weighted, mask=in_q)
        tl.store(sums + 2 * row, largest, mask=row_exists)
        tl.store(sums + 2 * row + 1, total, mask=row_exists)
