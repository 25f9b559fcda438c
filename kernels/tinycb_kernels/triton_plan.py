"""Who does what in the paged Triton kernel: the batch cut into items, on the host, before the launch.

The scheduler knows how long everything is, so the work can be laid out before a GPU is asked: which queries
of which request (a tile), and which of their keys (a part of what they see).

    A decodes at position 1299, B runs a prompt of 3; parts of 512 keys

    request  queries  keys           a program an item and KV head; the longest items go first,
    A        1299     0 …  511       so that the GPU does not wait for one that began last
    A        1299     512 … 1023
    A        1299     1024 … 1299    three parts of one answer: merged after the launch
    B        0 1 2    0 … 2

How a request is cut depends on its own lengths and on the table of launches, never on its neighbours: so a
request has the same bits alone and in any batch.

A plan serves every layer of a step. It moves no keys and computes nothing. Read next: triton_paged.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .backends import triton_is_interpreted
from .checks import FLOATS, MAX_HEAD_DIM
from .configs import SPLIT_TILES, Launch, attention_launch

Int64Array = NDArray[np.int64]
Lengths = Sequence[int] | NDArray[np.integer] | Tensor


@dataclass(frozen=True)
class PagedPlan:
    """The items of one step, for calls with this dtype, head dim and number of heads.

    items: (number, 8) int32: request, first token in T, queries, first head in its group, first key, end of
    keys, row among the parts (-1: the only part), 1 for a tile of many rows. merges: (number, 4) int32, the
    tokens with several parts: token, row of part 0, rows from part to part, parts. num_part_rows: rows of
    scratch memory, (H, D + 2) floats each. has_many: whether any item's tile has many rows.
    """

    items: Tensor
    merges: Tensor
    num_part_rows: int
    has_many: bool
    launch: Launch
    group: int
    head_dim: int
    dtype: torch.dtype
    query_start_loc: Int64Array  # (R+1,)
    seq_lens: Int64Array  # (R,)


def plan_paged(
    query_start_loc: Lengths,
    seq_lens: Lengths,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device | str,
) -> PagedPlan:
    """Cut a batch into items for `paged_attention(…, plan=…)` with `backend="triton"`.

    Args:
        query_start_loc, seq_lens: (R+1,) and (R,) as in the call, on the host.
        num_heads, num_kv_heads, head_dim, dtype: H, KH, D and the type of q in the calls to come.
        device: where they will run.

    Raises:
        ValueError: what is wrong, by argument.
    """
    starts, lens = on_host("query_start_loc", query_start_loc), on_host("seq_lens", seq_lens)
    if len(starts) != len(lens) + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise ValueError(
            f"query_start_loc: got {starts.tolist()!s:.80}, expected {len(lens) + 1} offsets that start with "
            "0 and never fall, one more than there are seq_lens"
        )
    if (lens < 0).any():
        raise ValueError(f"seq_lens: holds {lens.min()}, expected 0 or more")
    if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads: got {num_kv_heads}, expected a divisor of num_heads = {num_heads}")
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"head_dim: got {head_dim}, expected 1 to {MAX_HEAD_DIM}")
    if dtype not in FLOATS:
        raise ValueError(f"dtype: got {dtype}, expected {' or '.join(map(str, FLOATS))}")
    group = num_heads // num_kv_heads
    launch = attention_launch(dtype, head_dim, triton_is_interpreted())
    items, merges, num_part_rows = cut(starts, lens, group, launch)
    return PagedPlan(
        items=torch.from_numpy(items).to(device, non_blocking=True),
        merges=torch.from_numpy(merges).to(device, non_blocking=True),
        num_part_rows=num_part_rows,
        has_many=bool(items[:, 7].any()),
        launch=launch,
        group=group,
        head_dim=head_dim,
        dtype=dtype,
        query_start_loc=starts,
        seq_lens=lens,
    )


def on_host(name: str, lengths: Lengths) -> Int64Array:
    """A list, an array or a CPU tensor of integers, as one kind of array."""
    if isinstance(lengths, Tensor) and lengths.device.type != "cpu":
        raise ValueError(f"{name}: on {lengths.device}, expected a copy on the host")
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name}: got shape {array.shape} of {array.dtype}, expected a row of integers")
    return array.astype(np.int64)


def check_plan(
    plan: PagedPlan,
    q: Tensor,
    kv_heads: int,
    requests: int,
    lengths: tuple[list[int], list[int]] | None,
) -> None:
    """Raise ValueError unless the plan was made for such a call. lengths: what it must be for, if given."""
    if not isinstance(plan, PagedPlan):
        raise ValueError(f"plan: got {type(plan).__name__}, expected one from plan_paged")
    for what, made_for, wanted in (
        ("T", int(plan.query_start_loc[-1]), q.shape[0]),
        ("R", len(plan.seq_lens), requests),
        ("H // KH", plan.group, q.shape[1] // kv_heads),
        ("D", plan.head_dim, q.shape[2]),
        ("dtype", plan.dtype, q.dtype),
        ("device", plan.items.device, q.device),
    ):
        if made_for != wanted:
            raise ValueError(f"plan: made for {what} = {made_for}, expected {wanted} as in the call")
    if lengths is not None and (plan.query_start_loc.tolist(), plan.seq_lens.tolist()) != lengths:
        raise ValueError("plan: made for other lengths than query_start_loc and seq_lens have")


def cut(
    starts: Int64Array, seq_lens: Int64Array, group: int, launch: Launch
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """items (number, 8), merges (number, 4) and the number of part rows: see `PagedPlan`."""
    few, many = launch.few, launch.many
    few_heads, many_heads = min(group, few.rows), min(group, many.rows)  # of a group in one tile
    q_lens = np.diff(starts)  # (R,)
    is_many = (group * q_lens > few.rows) & (many != few)  # (R,)
    tile_heads = np.where(is_many, many_heads, few_heads)  # (R,)
    tile_queries = np.where(is_many, many.rows // many_heads, few.rows // few_heads)  # (R,)
    num_tiles = -(-q_lens // tile_queries)  # (R,)

    request, index = each(num_tiles)  # (tiles,)
    first = index * tile_queries[request]
    queries = np.minimum(tile_queries[request], q_lens[request] - first)
    keys = np.maximum(seq_lens[request] - q_lens[request] + first + queries, 0)  # of the tile's last query
    part_keys = np.where(is_many, many.part, few.part)[request]
    part_keys = np.where(num_tiles[request] <= SPLIT_TILES, part_keys, np.maximum(keys, 1))
    num_parts = np.maximum(-(-keys // part_keys), 1)  # a tile that sees nothing has one part, to write 0
    part_rows = np.where(num_parts > 1, queries * num_parts, 0)
    first_row = np.cumsum(part_rows) - part_rows

    tile, part = each(num_parts)  # (tiles' parts,)
    begin = part * part_keys[tile]
    end = np.minimum(begin + part_keys[tile], keys[tile])
    row = np.where(num_parts[tile] > 1, first_row[tile] + part * queries[tile], -1)
    order = np.argsort(begin - end, kind="stable")  # the longest first

    one, head_tile = each(-(-group // tile_heads[request[tile[order]]]))  # (items,)
    chosen = order[one]
    t = tile[chosen]
    r = request[t]
    items = [
        r, starts[r] + first[t], queries[t], head_tile * tile_heads[r], begin[chosen], end[chosen],
        row[chosen], is_many[r],
    ]  # fmt: skip

    t, query = each(np.where(num_parts > 1, queries, 0))  # (tokens with several parts,)
    merges = [starts[request[t]] + first[t] + query, first_row[t] + query, queries[t], num_parts[t]]
    return np.stack(items, 1).astype(np.int32), np.stack(merges, 1).astype(np.int32), int(part_rows.sum())


def each(counts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """[2, 0, 3] → owners [0, 0, 2, 2, 2] and indices [0, 1, 0, 1, 2]."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
