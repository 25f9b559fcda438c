"""Drives the runner and the executor without a scheduler: who runs how many tokens is written by the test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tinycb.config import EngineConfig
from tinycb.executors import ExecutorOutput, LlamaExecutor, ScheduledStep
from tinycb.model.attention import AttentionMetadata
from tinycb.model.checkpoint import LoadedModel, ModelError, load
from tinycb.packing import Row, pack
from tinycb.request import Request, SamplingParams

PATHS = ("mask", "varlen", "paged")


def load_or_skip(name: str) -> LoadedModel:
    try:
        return load(name, device="cpu")
    except ModelError as error:
        if "not installed" in str(error):
            pytest.skip(str(error))
        raise


def make_executor(loaded: LoadedModel, path: str = "paged", **settings: object) -> LlamaExecutor:
    values = {"attention": path, "num_blocks": 256, "block_size": 16} | settings
    return LlamaExecutor(loaded, EngineConfig(**values))


class Sequences:
    """Token sequences, their blocks scattered over the cache, and how far each has been computed."""

    def __init__(self, executor: LlamaExecutor, sequences: Sequence[Sequence[int]], seed: int = 0) -> None:
        self.executor = executor
        self.sequences = [list(s) for s in sequences]
        self.computed = [0] * len(sequences)
        size = executor.config.block_size
        order = np.random.default_rng(seed).permutation(executor.num_blocks)
        self.tables: list[list[int]] = []
        for s in sequences:
            count = -(-len(s) // size)
            self.tables.append([int(b) for b in order[:count]])
            order = order[count:]

    def step(self, chunks: Sequence[int], *, pad: bool = False) -> list[torch.Tensor]:
        """Run chunks[r] more tokens of sequence r; return the logits (chunk, V) of each, 0 leaves one out."""
        config, model = self.executor.config, self.executor.model
        running = [r for r, n in enumerate(chunks) if n or pad]
        rows = [Row(str(r), self.sequences[r], self.computed[r], chunks[r], self.tables[r]) for r in running]
        batch = pack(rows, config.block_size, pad=pad)
        batch.sample_indices = np.arange(len(batch.token_ids))
        meta = AttentionMetadata.build(batch, config.attention, config.backend, self.executor.cache)
        logits = model.forward(batch, self.executor.cache, meta)  # (T, V)
        result = [logits[:0] for _ in chunks]
        for i, r in enumerate(running):
            end = int(batch.query_start_loc[i + 1])
            result[r] = logits[end - chunks[r] : end]
            self.computed[r] += chunks[r]
        return result

    def run(self, plans: Sequence[Sequence[int]], *, pad: bool = False) -> list[torch.Tensor]:
        """Run every sequence by its plan of chunks, side by side; return all logits (length, V) of each."""
        parts: list[list[torch.Tensor]] = [[] for _ in plans]
        for i in range(max(map(len, plans))):
            chunks = [plan[i] if i < len(plan) else 0 for plan in plans]
            for r, logits in enumerate(self.step(chunks, pad=pad)):
                parts[r].append(logits)
        return [torch.cat(p) for p in parts]


def chop(length: int, rng: np.random.Generator, largest: int) -> list[int]:
    """Cut `length` tokens into chunks of 1 … largest."""
    chunks = []
    while length:
        chunks.append(min(length, int(rng.integers(1, largest + 1))))
        length -= chunks[-1]
    return chunks


def execute(
    executor: LlamaExecutor, requests: Sequence[Request], chunk: int | None = None, pad: bool = False
) -> ExecutorOutput:
    """One step of the executor: each request runs all it has left, or at most `chunk` tokens."""
    scheduled = {
        r.request_id: min(r.num_tokens - r.num_computed_tokens, chunk or r.num_tokens) for r in requests
    }
    computed = {r.request_id: r.num_computed_tokens for r in requests}
    sampling = [r for r in requests if r.num_computed_tokens + scheduled[r.request_id] == r.num_tokens]
    tables = {r.request_id: r.block_table for r in requests}
    output = executor.execute(ScheduledStep(list(requests), scheduled, computed, tables, sampling, pad))
    for r in requests:
        r.num_computed_tokens += scheduled[r.request_id]
        if r.request_id in output.token_ids:
            r.token_ids.append(output.token_ids[r.request_id])
    return output


def requests_for(
    executor: LlamaExecutor,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
) -> list[Request]:
    """Requests with blocks for everything they may generate."""
    all_params = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    requests, next_block = [], 0
    for i, (prompt, p) in enumerate(zip(prompts, all_params, strict=True)):
        request = Request(f"r{i}", prompt, p)
        count = -(-(len(prompt) + p.max_tokens) // executor.config.block_size)
        request.block_table = list(range(next_block, next_block + count))
        next_block += count
        requests.append(request)
    assert next_block <= (executor.num_blocks or 0)
    return requests


def generate(
    executor: LlamaExecutor,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
    *,
    chunk: int | None = None,
) -> list[Request]:
    """Batch all prompts until each has max_tokens; nothing ends a request early."""
    requests = requests_for(executor, prompts, params)
    while running := [r for r in requests if r.num_output_tokens < r.sampling_params.max_tokens]:
        execute(executor, running, chunk)
    return requests
