"""A layer's middle in one call: the same as its three parts in separate calls, to the last bit."""

from __future__ import annotations

import pytest
import torch

from tinycb.model.rope import rotate
from tinycb_kernels import paged_attention, write_kv
from tinycb_kernels.paged_step import PagedStep, can_step

pytest.importorskip("numba", reason="Numba is not installed: the parts are called one by one")

CPU = torch.device("cpu")
KV_HEADS, BLOCKS = 2, 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims", [24, 32])  # of which one query's keys may be read where they lie
@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("lengths", [[(1, 1)], [(1, 30), (5, 9), (1, 4)], [(40, 40), (30, 70)]])
def test_one_call_gives_the_bits_of_the_three(
    heads: int, dims: int, block_size: int, lengths: list[tuple[int, int]], dtype: torch.dtype
) -> None:
    torch.manual_seed(heads + block_size)
    tokens = sum(q for q, _ in lengths)
    blocks = -(-max(total for _, total in lengths) // block_size)
    caches = torch.randn(2, BLOCKS * len(lengths) * 2, block_size, KV_HEADS, dims).to(dtype)
    table = torch.randperm(len(caches[0]))[: blocks * len(lengths)].view(len(lengths), blocks).int()
    slots = torch.cat(
        [
            table[r, p // block_size].long() * block_size + p % block_size
            for r, (q, total) in enumerate(lengths)
            for p in [torch.arange(total - q, total)]
        ]
    )
    slots[0] = -1  # a padded row
    starts = torch.tensor([0, *torch.tensor([q for q, _ in lengths]).cumsum(0)], dtype=torch.int32)
    totals = torch.tensor([total for _, total in lengths], dtype=torch.int32)
    qkv = torch.randn(tokens, heads + 2 * KV_HEADS, dims)
    angle = torch.randn(tokens, dims // 2)
    cos, sin = angle.cos(), angle.sin()

    parts = caches.clone()
    q, k, v = qkv.split([heads, KV_HEADS, KV_HEADS], dim=1)
    q, k, v = rotate(q, cos, sin).to(dtype), rotate(k, cos, sin).to(dtype), v.to(dtype)
    write_kv(k, v, *parts, slots, backend="numba")
    want = paged_attention(q, *parts, table, starts, totals, backend="numba")

    have = PagedStep(slots, table, starts, totals)(qkv.clone(), cos, sin, *caches)
    assert torch.equal(have.to(dtype), want)
    assert torch.equal(caches, parts)


def test_it_is_for_the_compiled_loops() -> None:
    assert can_step("auto", CPU, torch.float32)
    assert can_step("numba", CPU, torch.bfloat16)
    assert not can_step("torch", CPU, torch.float32)
