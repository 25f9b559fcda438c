"""Inputs that have broken attention kernels, on every path and every backend. The numbers order them."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tinycb_kernels import mask_attention, paged_attention, varlen_attention, write_kv

from .batches import KERNEL_WAYS, WAYS, Backend, Batch, assert_right, make_batch, oracle, page, requests

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
every_way = pytest.mark.parametrize(("path", "backend"), WAYS, indirect=["backend"])
every_kernel = pytest.mark.parametrize(("path", "backend"), KERNEL_WAYS, indirect=["backend"])


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_1_last_block_partly_filled(path: str, backend: Backend, dtype: torch.dtype) -> None:
    batch = make_batch([(3, 21), (1, 5), (0, 4), (2, 17)], dtype=dtype)
    assert_right(batch.attend(path, backend), batch)


@every_kernel
def test_1_nan_in_a_neighbour(path: str, backend: Backend) -> None:
    """The mask cannot keep this one: 0 * NaN is NaN."""
    batch = make_batch([(5, 40), (7, 30), (2, 12)])
    alone = batch.attend(path, backend)
    middle_q, middle_k = requests(batch)[1]
    batch.k[middle_k], batch.v[middle_k] = torch.nan, torch.nan
    blocks = batch.block_table[1, :2].long()
    batch.k_cache[blocks], batch.v_cache[blocks] = torch.nan, torch.nan
    result = batch.attend(path, backend)
    assert result[middle_q].isnan().all(), "a request's own NaN must not be hidden"
    result[middle_q] = alone[middle_q]
    assert torch.equal(result, alone)


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_2_all_scores_far_below_zero(path: str, backend: Backend, dtype: torch.dtype) -> None:
    """Small integers make the scores exact: 63 * 30 * -30 = -56700, and the first number tells keys apart."""
    q_lens, seq_lens = [3, 1], [40, 33]
    q = torch.full((4, 2, 64), 30.0)
    q[:, :, 0] = 1
    k = torch.full((73, 1, 64), -30.0)
    generator = torch.Generator().manual_seed(0)
    k[:, :, 0] = torch.randint(-2, 3, (73, 1), generator=generator).float()
    v = torch.randn(73, 1, 64, generator=generator)
    batch = page(q.to(dtype), k.to(dtype), v.to(dtype), q_lens, seq_lens, 16, generator, scale=1.0)
    assert_right(batch.attend(path, backend), batch)


@every_way
def test_3_lengths_around_the_block_size(path: str, backend: Backend) -> None:
    block_size = 16
    lengths = [block_size - 1, block_size, block_size + 1, 2 * block_size, 1]
    batch = make_batch([(1, length) for length in lengths], heads=(2, 1), block_size=block_size)
    assert_right(batch.attend(path, backend), batch)


@every_way
@pytest.mark.parametrize(
    "heads", [(1, 1), (3, 1), (5, 1), (6, 2), (7, 1), (20, 1), (70, 1)], ids=lambda h: f"{h[0]}-{h[1]}"
)
def test_4_any_number_of_heads_in_a_group(path: str, backend: Backend, heads: tuple[int, int]) -> None:
    batch = make_batch([(5, 9), (1, 20)], heads=heads, dim=16)
    assert_right(batch.attend(path, backend), batch)


@every_kernel
@pytest.mark.parametrize("heads", [(3, 1), (7, 1), (20, 1)], ids=lambda h: f"{h[0]}-{h[1]}")
def test_4_rows_that_pad_a_tile_write_nothing(path: str, backend: Backend, heads: tuple[int, int]) -> None:
    batch = make_batch([(5, 9), (1, 20)], heads=heads, dim=24)
    tokens = len(batch.q)
    memory = torch.full((tokens + 70, heads[0] + 70, 24 + 8), 123.0, device=backend.device)
    out = memory[:tokens, : heads[0], :24]
    assert_right(batch.attend(path, backend, out=out), batch)
    out[:] = 123.0
    assert (memory == 123.0).all(), "something beside `out` was written to"


@every_way
@pytest.mark.parametrize("dim", [1, 8, 24, 40, 64, 80, 96, 128, 200, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_5_head_dims(path: str, backend: Backend, dim: int, dtype: torch.dtype) -> None:
    batch = make_batch([(4, 30), (1, 17)], heads=(2, 1), dim=dim, dtype=dtype)
    assert_right(batch.attend(path, backend), batch)


@every_kernel
def test_6_one_query_beside_many(path: str, backend: Backend) -> None:
    lengths = [(1, 90), (64, 100), (1, 1)]
    batch = make_batch(lengths)
    together = batch.attend(path, backend)
    assert_right(together, batch)
    for r, (q_rows, _) in enumerate(requests(batch)):
        alone = batch.only([r]).attend(path, backend)
        torch.testing.assert_close(alone, together[q_rows], rtol=1e-5, atol=1e-5)


FAR_PAGE = """
import torch
from tinycb_kernels import paged_attention, varlen_attention, write_kv

# Keys and values of a page lie side by side, 4096 numbers a page, so that page 524288 begins at 2**31.
pages, device = 2**31 // 4096 + 8, torch.device({device!r})
both = torch.empty(pages, 2, 16, 2, 64, dtype=torch.float16, device=device)
k_cache, v_cache = both[:, 0], both[:, 1]
near = torch.full((8, 16, 2, 64), torch.nan, dtype=torch.float16, device=device)
near_v = near.clone()
torch.manual_seed(0)
k, v = torch.randn(2, 40, 2, 64, dtype=torch.float16).to(device)
q = torch.randn(3, 4, 64, dtype=torch.float16).to(device)
positions = torch.arange(40, device=device)
starts = torch.tensor([0, 3], dtype=torch.int32, device=device)
length = torch.tensor([40], dtype=torch.int32, device=device)
results = []
for caches, table in (((k_cache, v_cache), [pages - 1, 1, pages - 5]), ((near, near_v), [2, 7, 0])):
    table = torch.tensor([table], dtype=torch.int32, device=device)
    slots = table[0, positions // 16].long() * 16 + positions % 16
    write_kv(k, v, *caches, slots, backend={backend!r})
    results.append(paged_attention(q, *caches, table, starts, length, backend={backend!r}))
# The same keys packed, with a page from each row to the next: all rows but the last 40 are another request's.
far = both[:, :, 0]  # (pages, 2, KH, D)
far[-40:, 0], far[-40:, 1] = k, v
q_starts = torch.tensor([0, 0, 3], dtype=torch.int32, device=device)
k_starts = torch.tensor([0, pages - 40, pages], dtype=torch.int32, device=device)
results.append(varlen_attention(q, far[:, 0], far[:, 1], q_starts, k_starts, backend={backend!r}))
assert torch.isfinite(results[1]).all()
assert torch.equal(results[0], results[1]), (results[0] - results[1]).abs().max()
assert torch.allclose(results[0], results[2], atol=2e-3), (results[0] - results[2]).abs().max()
print("equal")
"""


def test_7_pages_past_two_to_the_31(backend: Backend) -> None:
    """In a process of its own: a 32-bit offset would crash it. Of its 4 GiB a few pages are touched."""
    script = FAR_PAGE.format(device=str(backend.device), backend=backend.name)
    done = subprocess.run(
        [sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "equal", done.stderr


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_8_negative_slots_are_skipped(backend: Backend, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    k, v = torch.randn(2, 6, 2, 24, generator=generator).to(dtype).to(backend.device)
    k_cache = torch.zeros(4, 8, 2, 24, dtype=dtype, device=backend.device)
    v_cache = torch.zeros_like(k_cache)
    slots = torch.tensor([3, -1, 17, -1, -1024, 0], device=backend.device)
    write_kv(k, v, k_cache, v_cache, slots, backend=backend.name)
    for tokens, cache in ((k, k_cache), (v, v_cache)):
        flat = cache.flatten(0, 1)
        for token, slot in ((0, 3), (2, 17), (5, 0)):
            assert torch.equal(flat[slot], tokens[token])
            flat[slot] = 0
        assert not flat.any(), "a slot that no token was given has changed, such as the last"


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_9_last_tile_reaches_past_the_block_table(backend: Backend, block_size: int) -> None:
    """Behind the table's last column lie numbers of no block: reading through one would crash."""
    batch = make_batch([(2, 3 * block_size), (1, 2 * block_size)], block_size=block_size)
    wide = torch.full((2, 5), 2**30, dtype=torch.int32, device=backend.device)
    wide[:, :3] = batch.block_table
    b = batch.to(backend.device)
    for validate in (True, False):
        result = paged_attention(
            b.q, b.k_cache, b.v_cache, wide[:, :3], b.cu_seqlens_q, b.seq_lens,
            backend=backend.name, validate=validate,
        )  # fmt: skip
        assert_right(result.cpu(), batch)


def low_scores(q_len: int, seq_len: int) -> Batch:
    """Every score that counts is near -200."""
    batch = make_batch([(q_len, seq_len)], heads=(2, 1), dim=16)
    q, k = (batch.q * 8).round() / 8, (batch.k * 8).round() / 8  # so that the scores are exact
    q[:, :, 0], k[:, :, 0] = 20.0, -40.0  # times a scale of 1/4
    return page(q, k, batch.v, [q_len], [seq_len], 16, torch.Generator().manual_seed(0))


@every_way
def test_10_no_key_for_some_rows_and_low_scores_for_others(path: str, backend: Backend) -> None:
    batch = low_scores(9, 4)
    assert_right(batch.attend(path, backend), batch)
    batch = low_scores(3, 150)
    assert_right(batch.attend(path, backend), batch)


def test_10_mask_that_hides_the_first_keys() -> None:
    batch = low_scores(2, 300)
    mask = torch.zeros(2, 300, dtype=torch.bool)
    mask[0, 290:] = True
    result = mask_attention(batch.q, batch.k, batch.v, mask)
    kept = page(batch.q[:1], batch.k[290:], batch.v[290:], [1], [10], 16, torch.Generator())
    assert_right(result[:1], kept)
    assert not result[1].any()


def test_10_first_tile_hidden_in_the_online_softmax(triton_backend: Backend) -> None:
    """A causal row always sees key 0, so the step that the kernels share is also tried by itself."""
    from tinycb_kernels.triton_softmax import exp2_factor

    from .softmax_kernel import two_tiles

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 16, generator=generator) for n in (16, 32, 32))
    visible = torch.zeros(16, 32, dtype=torch.bool)
    visible[:8, 16:] = True  # these rows see nothing of the first tile
    visible[8:12, :16] = True  # these nothing of the second, and the last four nothing at all
    q[:, 0], k[:, 0] = 20.0, -10.0
    out = torch.empty(16, 16, device=triton_backend.device)
    inputs = [x.to(triton_backend.device) for x in (q, k, v, visible)]
    two_tiles[(1,)](*inputs, out, exp2_factor(1.0))
    scores = (q.double() @ k.double().T).masked_fill(~visible, -torch.inf)
    expected = torch.softmax(scores[:12], dim=1) @ v.double()
    torch.testing.assert_close(out[:12].cpu().double(), expected, rtol=1e-4, atol=1e-4)
    assert not out[12:].any()


@every_kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_11_real_strides_of_every_tensor(path: str, backend: Backend, dtype: torch.dtype) -> None:
    """Keys beside values, q cut from a fused projection, out transposed, and indices with gaps."""
    batch = make_batch([(3, 21), (1, 5), (2, 33)], dtype=dtype)
    expected = oracle(batch)
    tokens, heads, dim = batch.q.shape
    device = backend.device
    fused = torch.full((tokens, heads + 4, dim + 8), torch.nan, dtype=dtype, device=device)
    fused[:, 2 : heads + 2, 4 : dim + 4] = batch.q.to(device)
    q = fused[:, 2 : heads + 2, 4 : dim + 4]
    out = torch.empty(heads, dim, tokens, dtype=dtype, device=device).permute(2, 0, 1)

    def gaps(index: torch.Tensor) -> torch.Tensor:
        spread = torch.full((*index.shape[:-1], 2 * index.shape[-1]), 2**30, dtype=index.dtype, device=device)
        spread[..., ::2] = index.to(device)
        return spread[..., ::2]

    starts = gaps(batch.cu_seqlens_q)
    if path == "varlen":
        both = torch.stack([batch.k, batch.v], dim=1).to(device)  # (S, 2, KH, D)
        by_dim = both[:, 1].permute(2, 0, 1).contiguous().permute(1, 2, 0)  # the last stride is not 1
        result = varlen_attention(
            q, both[:, 0], by_dim, starts, gaps(batch.cu_seqlens_k), out=out, backend=backend.name
        )
    else:
        both = torch.stack([batch.k_cache, batch.v_cache], dim=1).to(device)  # (NB, 2, BS, KH, D)
        by_dim = both[:, 1].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        result = paged_attention(
            q, both[:, 0], by_dim, gaps(batch.block_table), starts, gaps(batch.seq_lens),
            out=out, backend=backend.name,
        )  # fmt: skip
    assert result is out
    assert_right(result.cpu(), batch, expected)


@every_way
def test_12_fewer_queries_than_keys(path: str, backend: Backend) -> None:
    batch = make_batch([(2, 7), (3, 3), (4, 2), (0, 5), (5, 0), (1, 64)])
    assert_right(batch.attend(path, backend), batch)


@every_way
@pytest.mark.parametrize("scale", [0.0, -0.7, 1e-40, 3.0])
def test_13_any_scale(path: str, backend: Backend, scale: float) -> None:
    """0 weighs all keys alike, and a hidden score of -inf times 0 is NaN; below 0 the smallest score wins."""
    batch = replace(make_batch([(3, 40), (1, 65), (4, 2)], heads=(2, 1)), scale=scale)
    assert_right(batch.attend(path, backend), batch)


@every_way
@pytest.mark.parametrize("lengths", [[], [(0, 0)], [(0, 5)], [(3, 0)], [(0, 0), (2, 2), (0, 0)]], ids=str)
def test_nothing_to_do(path: str, backend: Backend, lengths: list[tuple[int, int]]) -> None:
    batch = make_batch(lengths)
    assert_right(batch.attend(path, backend), batch)
