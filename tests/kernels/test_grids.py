"""Grids of lengths on every path and backend against the oracle, and cache writes, which must be exact."""

import functools

import numpy as np
import pytest
import torch

from tinycb_kernels import write_kv

from .batches import WAYS, Backend, Batch, assert_right, make_batch, oracle

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
MIXED = [
    [(1, 1328), (5, 18), (129, 463)],
    [(1, 523), (1, 37), (1, 2011)],
    [(8, 24), (20, 52)],
    [(1, 65), (1, 97), (1, 33)],
]
PAIRS = [
    (1, 239), (3, 799), (127, 512), (127, 513), (113, 203), (128, 217), (113, 211), (108, 256), (256, 512),
    (1023, 1024),
]  # fmt: skip


@functools.cache
def batch_and_oracle(
    lengths: tuple[tuple[int, int], ...], heads: tuple[int, int], block_size: int, dtype: torch.dtype
) -> tuple[Batch, np.ndarray]:
    batch = make_batch(list(lengths), heads, 64, block_size, dtype)
    return batch, oracle(batch)


def ways_and_dtypes(*paths: str) -> pytest.MarkDecorator:
    """Interpreted, Triton widens 16-bit numbers first; that is in test_cases.py, at less cost."""
    parameters = [
        (path, name, dtype)
        for path, name in WAYS
        for dtype in DTYPES
        if path in paths and (name != "triton" or dtype == torch.float32 or torch.cuda.is_available())
    ]
    return pytest.mark.parametrize(("path", "backend", "dtype"), parameters, indirect=["backend"], ids=str)


def check(
    path: str,
    backend: Backend,
    lengths: tuple[tuple[int, int], ...],
    heads: tuple[int, int],
    block_size: int,
    dtype: torch.dtype,
) -> None:
    batch, reference = batch_and_oracle(lengths, heads, block_size, dtype)
    assert_right(batch.attend(path, backend), batch, reference)


@ways_and_dtypes("mask", "varlen", "paged")
@pytest.mark.parametrize("heads", [(4, 4), (8, 2), (5, 1)], ids=lambda h: f"{h[0]}-{h[1]}")
@pytest.mark.parametrize("lengths", MIXED, ids=str)
def test_mixed_batches(
    path: str, backend: Backend, dtype: torch.dtype, heads: tuple[int, int], lengths: list[tuple[int, int]]
) -> None:
    if backend.interpreted:  # one KV head stands for all; that heads find theirs is in test_cases.py
        heads = (heads[0] // heads[1], 1)
    check(path, backend, tuple(lengths), heads, 16, dtype)


@ways_and_dtypes("paged")
@pytest.mark.parametrize("block_size", [1, 16, 256])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_pairs_paged(
    path: str, backend: Backend, dtype: torch.dtype, pair: tuple[int, int], block_size: int
) -> None:
    check(path, backend, (pair,), (2, 1), block_size, dtype)


@ways_and_dtypes("mask", "varlen")
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_pairs_packed(path: str, backend: Backend, dtype: torch.dtype, pair: tuple[int, int]) -> None:
    check(path, backend, (pair,), (2, 1), 16, dtype)


@pytest.mark.parametrize("block_size", [1, 7, 100, 1024])
def test_block_sizes(backend: Backend, block_size: int) -> None:
    batch = make_batch([(3, 130), (1, 99), (2, 200)], heads=(3, 1), block_size=block_size)
    assert_right(batch.attend("paged", backend), batch)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("dim", [64, 80])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cache_writes(backend: Backend, dtype: torch.dtype, dim: int, block_size: int) -> None:
    """42 tokens in random slots of their own, from a fused projection into a cache of keys beside values."""
    generator = torch.Generator().manual_seed(block_size)
    fused = torch.randn(42, 3, 8, dim, generator=generator).to(dtype).to(backend.device)
    k, v = fused[:, 1], fused[:, 2]
    num_slots = 12 * block_size
    slots = torch.randperm(num_slots, generator=generator)[:42].to(backend.device)
    both = torch.full((12, 2, block_size, 8, dim), torch.nan, dtype=dtype, device=backend.device)
    write_kv(k, v, both[:, 0], both[:, 1], slots, backend=backend.name)
    for tokens, cache in ((k, both[:, 0]), (v, both[:, 1])):
        flat = cache.flatten(0, 1)  # (NB * BS, KH, D)
        assert torch.equal(flat[slots], tokens)
        others = torch.ones(num_slots, dtype=torch.bool)
        others[slots.cpu()] = False
        assert flat[others.to(backend.device)].isnan().all()
