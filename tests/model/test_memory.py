"""Memory: the arithmetic against real tensors, and a cache that does not fit."""

from __future__ import annotations

import doctest

import pytest
import torch
from model_driver import make_executor

import tinycb.memory
from tinycb.memory import kv_bytes_per_token, num_blocks_for, num_parameters, weight_bytes
from tinycb.model.checkpoint import LoadedModel
from tinycb.model.kv_cache import KVCache, available_memory
from tinycb.model.tiny_random import TINY_CONFIG, TinyWeights

CPU = torch.device("cpu")


def test_examples() -> None:
    assert doctest.testmod(tinycb.memory).failed == 0


def test_bytes_are_those_of_the_tensors(tiny: LoadedModel) -> None:
    sizes: list[int] = []

    class Counting(TinyWeights):
        def get(self, name: str, shape: tuple[int, ...], *rest: object) -> torch.Tensor:
            sizes.append(int(torch.Size(shape).numel()))
            return torch.zeros(shape)

    from tinycb.model.llama import Llama

    Llama(
        TINY_CONFIG,
        lambda name, shape: Counting().get(name, shape),
        has_head=True,
        device=CPU,
        dtype=torch.float32,
    )
    assert num_parameters(TINY_CONFIG) == sum(sizes)
    assert weight_bytes(TINY_CONFIG, "bfloat16") == 2 * sum(sizes)
    cache = KVCache(TINY_CONFIG, 3, 8, CPU, torch.float16)
    per_token = kv_bytes_per_token(2, 2, 16, "float16")
    assert cache.k.nbytes + cache.v.nbytes == 3 * 8 * per_token


def test_num_blocks_from_memory(tiny: LoadedModel) -> None:
    per_token = kv_bytes_per_token(2, 2, 16)
    executor = make_executor(tiny, num_blocks=None, kv_cache_memory=10 * 16 * per_token + 5)
    assert executor.num_blocks == 10 == executor.cache.num_blocks
    with pytest.raises(ValueError, match="holds no block"):
        num_blocks_for(100, 16, per_token)
    with pytest.raises(ValueError, match="int8"):
        kv_bytes_per_token(1, 1, 1, "int8")


def test_a_cache_that_does_not_fit_is_refused_with_both_numbers(tiny: LoadedModel) -> None:
    assert 0 < available_memory(CPU) < 2**50
    with pytest.raises(
        ValueError, match=r"num_blocks=10000000000 does not fit: .* \d+ bytes, and cpu has \d+"
    ):
        make_executor(tiny, num_blocks=10**10)
