"""The memory budget: known figures, and what must hold of any model and any memory."""

from __future__ import annotations

import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinycb.memory
from tinycb.costs.shapes import known_shapes, load_shape
from tinycb.memory import MemoryBudget, block_size_cost, kv_bytes_per_token, num_parameters, weight_bytes

LLAMA = load_shape("llama-3-8b")


def test_llama_3_8b_in_bf16_takes_128_kib_a_token_and_512_mib_for_4096() -> None:
    budget = MemoryBudget.of(LLAMA, 80 * 2**30, "bfloat16")
    assert budget.token_bytes == 131_072
    assert 4096 * budget.token_bytes == 512 * 2**20
    assert num_parameters(LLAMA) == 8_030_261_248  # what its checkpoint's index says, in bf16 halves


def test_shipped_models_have_the_published_numbers_of_parameters() -> None:
    assert num_parameters(load_shape("llama-3-70b")) == 70_553_706_496
    assert num_parameters(load_shape("smollm2-135m")) == 134_515_008
    assert known_shapes() == ["llama-3-70b", "llama-3-8b", "smollm2-135m"]


@given(
    memory=st.integers(17 * 10**9, 10**12),
    block_size=st.integers(1, 1024),
    length=st.integers(1, 200_000),
    dtype=st.sampled_from(["bfloat16", "float32"]),
)
def test_what_fits_fits_and_one_more_does_not(memory: int, block_size: int, length: int, dtype: str) -> None:
    weights = weight_bytes(LLAMA, dtype)
    if memory - weights < block_size * kv_bytes_per_token(32, 8, 128, dtype):
        with pytest.raises(ValueError, match=r"weights take|holds no block"):
            MemoryBudget.of(LLAMA, memory, dtype, block_size)
        return
    budget = MemoryBudget.of(LLAMA, memory, dtype, block_size)
    free, token = memory - weights, budget.token_bytes
    assert budget.max_tokens * token <= free < (budget.max_tokens + 1) * token
    assert budget.num_blocks * block_size <= budget.max_tokens
    fit, blocks = budget.requests_of(length), -(-length // block_size)
    assert fit * blocks <= budget.num_blocks < (fit + 1) * blocks


@given(length=st.integers(1, 10_000), sizes=st.sets(st.integers(1, 1024), min_size=1))
def test_slack_is_less_than_a_block_and_averages_half_of_one(length: int, sizes: set[int]) -> None:
    for cost in block_size_cost(length, sizes):
        assert 0 <= cost.slack_tokens < cost.block_size
        assert cost.blocks * cost.block_size == length + cost.slack_tokens
        all_slack = [
            block_size_cost(n, [cost.block_size])[0].slack_tokens for n in range(1, cost.block_size + 1)
        ]
        assert sum(all_slack) / len(all_slack) == cost.mean_slack


def test_weights_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"weights take 141,107,412,992 .* has 85,899,345,920"):
        MemoryBudget.of(load_shape("llama-3-70b"), 80 * 2**30)


def test_examples() -> None:
    assert doctest.testmod(tinycb.memory).failed == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "cannot be read"),
        ("[1]", "holds a list"),
        (json.dumps({"architectures": ["MixtralForCausalLM"]}), "MixtralForCausalLM is not supported"),
        (json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": -1}), "hidden_size must be"),
    ],
)
def test_a_bad_config_is_one_line_that_names_the_file(tmp_path, content: str, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    for model in (path, tmp_path):
        with pytest.raises(ValueError, match=says) as caught:
            load_shape(model)
        assert str(path) in str(caught.value)


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no model 'gpt-9'; give llama-3-70b, llama-3-8b, smollm2-135m"):
        load_shape("gpt-9")
