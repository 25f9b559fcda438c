"""LlamaExecutor: the protocol, equal tokens on every path and in any chunks, and requests it refuses."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from model_driver import PATHS, execute, generate, make_executor, requests_for

from tinycb.config import EngineConfig
from tinycb.engine import Engine
from tinycb.executors import Executor, LlamaExecutor
from tinycb.model.checkpoint import LoadedModel, load
from tinycb.model.model_config import ModelConfig
from tinycb.request import Request, SamplingParams

RNG = np.random.default_rng(1)
PROMPTS = [[int(t) for t in RNG.integers(1, 256, n)] for n in (1, 33, 7, 16, 60, 2)]
GREEDY = SamplingParams(max_tokens=24)


def tokens(executor: LlamaExecutor, **options: int) -> list[list[int]]:
    return [r.output_token_ids for r in generate(executor, PROMPTS, GREEDY, **options)]


def test_it_is_an_executor(tiny: LoadedModel) -> None:
    executor: Executor = make_executor(tiny)
    assert executor.name == "tiny-random"
    assert (executor.vocab_size, executor.max_model_len, executor.num_blocks) == (256, 512, 256)
    assert set(executor.eos_token_ids) == {0}


def test_tiny_random_says_many_things(tiny: LoadedModel) -> None:
    outputs = tokens(make_executor(tiny))
    assert len({tuple(o) for o in outputs}) == len(outputs)
    assert all(len(set(o)) >= 8 for o in outputs)


def test_every_path_and_chunking_gives_the_same_tokens(tiny: LoadedModel) -> None:
    expected = tokens(make_executor(tiny))
    for path in PATHS:
        for backend in ("torch", "numba"):
            for chunk, block_size in [(None, 1), (5, 16)]:
                executor = make_executor(tiny, path, backend=backend, block_size=block_size, num_blocks=1024)
                assert tokens(executor, chunk=chunk) == expected, (path, backend, chunk, block_size)


@pytest.mark.parametrize("path", PATHS)
def test_static_padding_gives_the_same_tokens(tiny: LoadedModel, path: str) -> None:
    expected = tokens(make_executor(tiny))
    executor = make_executor(tiny, path)
    requests = requests_for(executor, PROMPTS, GREEDY)
    for _ in range(GREEDY.max_tokens):
        execute(executor, requests, pad=True)
    assert [r.output_token_ids for r in requests] == expected


@pytest.mark.parametrize("path", ["varlen", "paged"])
def test_the_triton_kernels_serve_it_interpreted(tiny: LoadedModel, path: str) -> None:
    pytest.importorskip("tinycb_kernels.triton_paged", reason="the Triton kernels are not there")
    expected = [
        r.output_token_ids for r in generate(make_executor(tiny), PROMPTS[:3], SamplingParams(max_tokens=4))
    ]
    executor = make_executor(tiny, path, backend="triton")
    requests = generate(executor, PROMPTS[:3], SamplingParams(max_tokens=4))
    assert [r.output_token_ids for r in requests] == expected


def test_uncomputed_memory_may_hold_nan(tiny: LoadedModel) -> None:
    expected = tokens(make_executor(tiny))
    for path in PATHS:
        executor = make_executor(tiny, path)
        executor.cache.k.fill_(float("nan"))
        executor.cache.v.fill_(float("nan"))
        assert tokens(executor) == expected


@pytest.mark.parametrize("path", ["varlen", "paged"])
def test_a_request_whose_cache_holds_nan_fails_alone(tiny: LoadedModel, path: str) -> None:
    expected = tokens(make_executor(tiny))
    executor = make_executor(tiny, path)
    requests = requests_for(executor, PROMPTS, GREEDY)
    execute(executor, requests)
    executor.cache.v[:, requests[1].block_table[0]] = float("nan")
    output = execute(executor, requests)
    assert set(output.errors) == {"r1"}
    healthy = [r for r in requests if r.request_id != "r1"]
    while healthy[0].num_output_tokens < GREEDY.max_tokens:
        execute(executor, healthy)
    assert [r.output_token_ids for r in healthy] == expected[:1] + expected[2:]


def test_seeded_sampling_does_not_depend_on_neighbours_or_preemption(tiny: LoadedModel) -> None:
    hot = [SamplingParams(temperature=1.0, top_p=0.9, seed=i, max_tokens=12) for i in range(len(PROMPTS))]
    together = [r.output_token_ids for r in generate(make_executor(tiny), PROMPTS, hot)]
    for i, prompt in enumerate(PROMPTS):
        (alone,) = generate(make_executor(tiny), [prompt], [hot[i]], chunk=3)
        assert alone.output_token_ids == together[i]
    (request,) = requests_for(executor := make_executor(tiny), PROMPTS[4:5], hot[4:5])
    while request.num_output_tokens < 12:
        execute(executor, [request])
        if request.num_output_tokens in (3, 7):
            request.num_computed_tokens = 0  # its blocks were taken; it starts again elsewhere
            request.block_table = [b + 20 for b in request.block_table]
    assert request.output_token_ids == together[4]


def test_requests_that_cannot_be_served(tiny: LoadedModel) -> None:
    executor = make_executor(tiny)
    executor.check_request(Request("a", [255], SamplingParams(logprobs=256, stop_token_ids=[255])))
    for prompt, params, words in [
        ([1, 256], SamplingParams(), "prompt_token_ids holds 256"),
        ([1], SamplingParams(stop_token_ids=[300]), "stop_token_ids holds 300"),
        ([1], SamplingParams(logprobs=257), "logprobs must be at most 256"),
    ]:
        with pytest.raises(ValueError, match=words):
            executor.check_request(Request("a", prompt, params))


def test_max_model_len_past_the_model_is_refused_with_the_reason(tiny: LoadedModel) -> None:
    assert make_executor(tiny, max_model_len=100).max_model_len == 100
    with pytest.raises(ValueError, match=r"max_model_len=513 .* 512: the model has 512 positions"):
        make_executor(tiny, max_model_len=513)
    raw = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    shape = ModelConfig(**{f: getattr(tiny.config, f) for f in tiny.config.__slots__} | {"rope": raw})
    dynamic = LoadedModel("d", tiny.model, shape, None)
    assert LlamaExecutor(dynamic, EngineConfig(num_blocks=4)).max_model_len == 512
    with pytest.raises(ValueError, match="longest text in the batch"):
        LlamaExecutor(dynamic, EngineConfig(num_blocks=4, max_model_len=513))


def test_an_engine_whose_blocks_are_of_another_size_is_refused(tiny: LoadedModel) -> None:
    """Its tables would mean other slots: wrong answers where prefixes are shared, or none."""
    executor = make_executor(tiny, block_size=4, num_blocks=8)
    for block_size in (2, 8):
        with pytest.raises(ValueError, match=f"block_size={block_size}, .* blocks of 4"):
            Engine(EngineConfig(block_size=block_size, num_blocks=8), executor)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs(dtype: str) -> None:
    loaded = load("tiny-random", device="cpu", dtype=dtype)
    for path in PATHS:
        executor = make_executor(loaded, path)
        assert executor.cache.k.dtype == getattr(torch, dtype)
        (request,) = generate(executor, [PROMPTS[1]], SamplingParams(max_tokens=4))
        assert len(request.output_token_ids) == 4


def test_importing_the_executors_imports_no_torch() -> None:
    script = (
        "import sys, tinycb.executors, tinycb.tokenizer\nassert not {'torch', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
