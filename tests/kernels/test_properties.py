"""What holds for any batch: found by hypothesis, which shrinks a failure to its smallest form."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinycb_kernels import causal_mask, mask_attention, write_kv

from .batches import Backend, assert_right, make_batch, requests

# Interpreted Triton takes a tenth of a second a batch.
many = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
few = settings(parent=many, max_examples=12)


@st.composite
def batches(draw: st.DrawFn) -> dict:
    """Arguments of make_batch: ragged, and often right at the end of a block."""
    block_size = draw(st.sampled_from([1, 2, 3, 8, 16, 64]))
    near_an_edge = st.builds(lambda k, d: max(0, k * block_size + d), st.integers(0, 3), st.integers(-1, 1))
    length = st.one_of(near_an_edge, st.integers(0, 70))
    kv_heads = draw(st.integers(1, 2))
    return {
        "lengths": draw(
            st.lists(st.tuples(st.one_of(st.integers(0, 3), st.integers(0, 40)), length), max_size=5)
        ),
        "heads": (kv_heads * draw(st.integers(1, 5)), kv_heads),
        "dim": draw(st.sampled_from([4, 16, 24, 32])),
        "block_size": block_size,
        "seed": draw(st.integers(0, 2**16)),
    }


@given(arguments=batches(), dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
@many
def test_loops_and_reference_are_right(numba_backend: Backend, arguments: dict, dtype: torch.dtype) -> None:
    batch = make_batch(**arguments, dtype=dtype)
    reference = Backend("torch", torch.device("cpu"), False)
    for backend in (numba_backend, reference):
        assert_right(batch.attend("varlen", backend), batch)
        assert_right(batch.attend("paged", backend), batch)
    assert_right(batch.attend("mask", reference), batch)


@given(arguments=batches())
@few
def test_triton_is_right(triton_backend: Backend, arguments: dict) -> None:
    batch = make_batch(**arguments)
    assert_right(batch.attend("varlen", triton_backend), batch)
    assert_right(batch.attend("paged", triton_backend), batch)


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # the interpreter's numpy, of the NaNs planted here
@given(arguments=batches(), data=st.data())
@few
def test_a_neighbour_full_of_nan_changes_nothing(
    backend: Backend, arguments: dict, data: st.DataObject
) -> None:
    if not arguments["lengths"]:
        return
    poisoned = data.draw(st.integers(0, len(arguments["lengths"]) - 1))
    for path in ("varlen", "paged"):
        batch = make_batch(**arguments)
        before = batch.attend(path, backend)
        q_rows, k_rows = requests(batch)[poisoned]
        batch.k[k_rows], batch.v[k_rows] = torch.nan, torch.nan
        blocks = batch.block_table[poisoned]
        batch.k_cache[blocks[blocks >= 0].long()] = torch.nan
        batch.v_cache[blocks[blocks >= 0].long()] = torch.nan
        after = batch.attend(path, backend)
        after[q_rows] = before[q_rows]
        assert torch.equal(before, after)


@given(data=st.data(), block_size=st.integers(1, 9), dim=st.sampled_from([1, 5, 16]))
@few
def test_writes_are_assignments(backend: Backend, data: st.DataObject, block_size: int, dim: int) -> None:
    num_blocks = data.draw(st.integers(1, 6))
    slot = st.integers(0, num_blocks * block_size - 1)
    slots = data.draw(st.lists(slot, unique=True, max_size=20))
    for i in data.draw(st.sets(st.integers(0, 20))):
        slots.insert(min(i, len(slots)), -1)
    k = torch.randn(len(slots), 2, dim, device=backend.device)
    caches = [torch.zeros(num_blocks, block_size, 2, dim, device=backend.device) for _ in range(2)]
    mapping = torch.tensor(slots, dtype=torch.int64, device=backend.device)
    write_kv(k, -k, *caches, mapping, backend=backend.name)
    expected = torch.zeros_like(caches[0])
    for token, place in enumerate(slots):
        if place >= 0:
            expected[place // block_size, place % block_size] = k[token]
    assert torch.equal(caches[0], expected)
    assert torch.equal(caches[1], -expected)


@given(lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=5))
def test_the_mask_is_the_definition(lengths: list[tuple[int, int]]) -> None:
    batch = make_batch(lengths)
    mask = causal_mask(batch.cu_seqlens_q, batch.cu_seqlens_k)
    expected = torch.zeros(len(batch.q), len(batch.k), dtype=torch.bool)
    for q_rows, k_rows in requests(batch):
        q_len, seq_len = q_rows.stop - q_rows.start, k_rows.stop - k_rows.start
        for i in range(q_len):
            for j in range(seq_len):
                expected[q_rows.start + i, k_rows.start + j] = j <= seq_len - q_len + i
    assert torch.equal(mask, expected)


@given(rows=st.integers(1, 5), keys=st.integers(1, 12), seed=st.integers(0, 99))
def test_any_mask_is_legal(rows: int, keys: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, 2, 8, generator=generator) for n in (rows, keys, keys))
    mask = torch.rand(rows, keys, generator=generator) < 0.5
    result = mask_attention(q, k, v, mask, scale=0.5)
    for i in range(rows):
        scores = torch.einsum("hd,shd->hs", q[i].double(), k[mask[i]].double()) * 0.5
        expected = torch.einsum("hs,shd->hd", scores.softmax(-1), v[mask[i]].double())
        torch.testing.assert_close(result[i].double(), expected, rtol=1e-5, atol=1e-5)


def test_a_mask_row_may_be_empty() -> None:
    q = torch.randn(2, 2, 8)
    assert not mask_attention(q, q, q, torch.zeros(2, 2, dtype=torch.bool)).any()
