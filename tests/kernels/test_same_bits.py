"""The CPU loops, and paged Triton, give a request the same bits in whatever company it comes.

Every comparison here is exact. The CPU loops promise more: the same bits in any chunks, blocks and places.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .batches import Backend, Batch, assert_right, make_batch, offsets, page, requests
from .test_properties import batches

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LENGTHS = [(1, 130), (40, 200), (7, 64), (0, 9), (1, 1), (65, 65), (3, 2), (130, 131)]
PATHS = ("varlen", "paged")


def repage(batch: Batch, block_size: int, seed: int = 1) -> Batch:
    """The same requests in blocks of another size, elsewhere."""
    q_lens, seq_lens = batch.cu_seqlens_q.diff().tolist(), batch.seq_lens.tolist()
    generator = torch.Generator().manual_seed(seed)
    return page(batch.q, batch.k, batch.v, q_lens, seq_lens, block_size, generator, batch.scale)


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def batch(request: pytest.FixtureRequest) -> Batch:
    return make_batch(LENGTHS, heads=(6, 2), dim=40, dtype=request.param)


@pytest.fixture(scope="module")
def expected(batch: Batch, numba_backend: Backend) -> torch.Tensor:
    return batch.attend("varlen", numba_backend)


def test_paged_and_varlen(batch: Batch, expected: torch.Tensor, numba_backend: Backend) -> None:
    assert torch.equal(batch.attend("paged", numba_backend), expected)


@pytest.mark.parametrize("block_size", [1, 3, 8, 64, 100, 256])
def test_block_size_and_placement(
    batch: Batch, expected: torch.Tensor, numba_backend: Backend, block_size: int
) -> None:
    assert torch.equal(repage(batch, block_size).attend("paged", numba_backend), expected)


@pytest.mark.parametrize("block_size", [16, 32, 48, 17])
@pytest.mark.parametrize("dim", [16, 64])
@pytest.mark.parametrize("heads", [(6, 2), (4, 1), (5, 1), (3, 3)])
@pytest.mark.parametrize("requests", [3, 9])  # 9 are enough for a thread to take all heads of some together
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_that_reads_keys_where_they_lie(
    numba_backend: Backend,
    dtype: torch.dtype,
    requests: int,
    heads: tuple[int, int],
    dim: int,
    block_size: int,
) -> None:
    lengths = [(1, 130), (1, 1), (1, 16), (1, 47), (2, 50), (0, 9), (1, 48), (1, 49), (33, 80)]
    batch = make_batch(lengths[:requests], heads=heads, dim=dim, dtype=dtype)
    copied = batch.attend("varlen", numba_backend)
    assert torch.equal(repage(batch, block_size).attend("paged", numba_backend), copied)


@pytest.mark.parametrize("path", PATHS)
def test_alone(batch: Batch, expected: torch.Tensor, numba_backend: Backend, path: str) -> None:
    for r, (q_rows, _) in enumerate(requests(batch)):
        assert torch.equal(batch.only([r]).attend(path, numba_backend), expected[q_rows])


@pytest.mark.parametrize("path", PATHS)
def test_order(batch: Batch, expected: torch.Tensor, numba_backend: Backend, path: str) -> None:
    order = [5, 2, 7, 0, 6, 3, 1, 4]
    result = batch.only(order).attend(path, numba_backend)
    assert torch.equal(result, torch.cat([expected[requests(batch)[r][0]] for r in order]))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("chunk", [1, 5, 16, 33])
def test_chunks(batch: Batch, expected: torch.Tensor, numba_backend: Backend, path: str, chunk: int) -> None:
    """Queries first ... last of a request, asked while the tokens after them are not there yet."""
    r = 1
    q_rows, k_rows = requests(batch)[r]
    q_len, seq_len = q_rows.stop - q_rows.start, k_rows.stop - k_rows.start
    for first in range(0, q_len, chunk):
        last = min(first + chunk, q_len)
        length = seq_len - q_len + last
        part = replace(
            batch,
            q=batch.q[q_rows][first:last],
            k=batch.k[k_rows][:length],
            v=batch.v[k_rows][:length],
            cu_seqlens_q=offsets([last - first]),
            cu_seqlens_k=offsets([length]),
            seq_lens=torch.tensor([length], dtype=torch.int32),
            block_table=batch.block_table[r : r + 1],
        )
        assert torch.equal(part.attend(path, numba_backend), expected[q_rows][first:last])


@pytest.mark.parametrize("path", PATHS)
def test_number_of_threads(batch: Batch, expected: torch.Tensor, numba_backend: Backend, path: str) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(batch.attend(path, numba_backend), expected)
    finally:
        torch.set_num_threads(threads)


@given(arguments=batches(), block_size=st.sampled_from([1, 4, 16, 50]))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch(numba_backend: Backend, arguments: dict, block_size: int) -> None:
    batch = make_batch(**arguments)
    expected = batch.attend("varlen", numba_backend)
    assert torch.equal(batch.attend("paged", numba_backend), expected)
    assert torch.equal(repage(batch, block_size).attend("paged", numba_backend), expected)
    for r, (q_rows, _) in enumerate(requests(batch)):
        assert torch.equal(batch.only([r]).attend("paged", numba_backend), expected[q_rows])


# Interpreted, a decoding request's keys are cut every 32, a prompt's every 512.
SPLIT = [(1, 100), (9, 514), (1, 32), (0, 9), (5, 3), (2, 33)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_paged_triton_alone_and_in_any_order(triton_backend: Backend, dtype: torch.dtype) -> None:
    batch = make_batch(SPLIT, heads=(3, 1), dim=24, dtype=dtype)
    expected = batch.attend("paged", triton_backend)
    assert_right(expected, batch)
    for r, (q_rows, _) in enumerate(requests(batch)):
        assert torch.equal(batch.only([r]).attend("paged", triton_backend), expected[q_rows])
    order = [4, 2, 0, 1, 3, 5]
    result = batch.only(order).attend("paged", triton_backend)
    assert torch.equal(result, torch.cat([expected[requests(batch)[r][0]] for r in order]))


@given(arguments=batches(), longer=st.lists(st.integers(30, 100), max_size=1), data=st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_paged_triton_in_any_batch(
    triton_backend: Backend, arguments: dict, longer: list[int], data: st.DataObject
) -> None:
    """With a long context or two, which are cut into parts whoever else is there."""
    arguments["lengths"] += [(data.draw(st.integers(1, 3)), seq_len) for seq_len in longer]
    batch = make_batch(**arguments)
    expected = batch.attend("paged", triton_backend)
    assert_right(expected, batch)
    for r, (q_rows, _) in enumerate(requests(batch)):
        assert torch.equal(batch.only([r]).attend("paged", triton_backend), expected[q_rows])
