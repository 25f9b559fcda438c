"""Theorems about an engine on a real model: the tokens, and the bits, that a request gets alone.

The subject is a function that makes an engine: `make(config, trace=None)`. `tiny_engine`, on `tiny-random`,
is the one that this project's own tests use. Before every forward all memory that nobody may read is filled
with NaN: free blocks, the rest of last blocks, what a failed forward left behind.

    from tinycb.proofs.engine_theorems import ENGINE
    for theorem in ENGINE:
        theorem.prove(my_engine)

Next: `serving.py`, where the same is asked of schedulers without a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from tinycb.config import EngineConfig
from tinycb.engine import Engine
from tinycb.executors import ExecutorOutput, LlamaExecutor, ScheduledStep
from tinycb.model.attention import AttentionMetadata
from tinycb.model.checkpoint import LoadedModel, load
from tinycb.model.kv_cache import KVCache
from tinycb.packing import PackedBatch
from tinycb.proofs import planted
from tinycb.proofs.laws import expected_length
from tinycb.proofs.serving_run import Law, Run, Watched, serve
from tinycb.proofs.theorem import Counterexample, Scope, Theorem
from tinycb.proofs.workloads import Serving, servings
from tinycb.request import Request

__all__ = ["ENGINE", "Alone", "MakeEngine", "alone", "tiny_engine"]

MARGIN = 1e-5  # of the largest logit: closer than that, two tokens may change places by rounding


class MakeEngine(Protocol):
    """Makes an engine for a configuration; `trace` is a path to record its steps to."""

    def __call__(self, config: EngineConfig, trace: Path | None = None) -> Engine: ...


def tiny_engine(config: EngineConfig, trace: Path | None = None) -> Engine:
    """An engine on the seeded random Llama of `tiny-random`."""
    return Engine(config, LlamaExecutor(_tiny(), config), trace=trace, clock=lambda: 0.0)


@cache
def _tiny() -> LoadedModel:
    return load("tiny-random", device="cpu")


class Alone(NamedTuple):
    """What a request gets alone. logits: by position; the answer's n-th token follows from position p + n."""

    tokens: Sequence[int]
    logits: Mapping[int, Tensor]  # each (V,)


def alone(make: MakeEngine, request: Request, attention: str = "paged") -> Alone:
    """Run one request by itself: its whole prompt in one step, no prefix cache, a pool with room to spare."""
    key = (planted.active(), attention, tuple(request.prompt_token_ids), request.sampling_params.max_tokens)
    known = _known.setdefault(make, {})
    if key not in known:
        config = EngineConfig(
            batching="continuous", attention=attention, num_blocks=64, max_num_seqs=1, prefix_caching=False
        )
        engine = make(config)
        watched = engine.executor = WatchedLlama(engine.executor)
        run = Run(engine, Law())
        run.add(Request("alone", request.prompt_token_ids, request.sampling_params))
        while engine.has_unfinished_requests():
            run.step()
        logits = {position: rows[0] for (_, position), rows in watched.model.logits.items()}
        known[key] = Alone(engine.outputs["alone"].token_ids, logits)
    return known[key]


_known: WeakKeyDictionary[MakeEngine, dict[Any, Alone]] = WeakKeyDictionary()


class WatchedLlama(Watched):
    """A LlamaExecutor whose unowned memory is NaN, and of whose model every logit is kept."""

    def __init__(self, executor: Any) -> None:
        self.inner: LlamaExecutor = executor
        self.model = executor.model = KeepsLogits(executor.model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forget(self, live: set[int]) -> None:
        size = self.inner.config.block_size
        dead = [slot for slot in range(self.inner.cache.num_blocks * size) if slot not in live]
        self.fill_with_nan(dead)

    def spoil(self, step: ScheduledStep) -> None:
        size = self.inner.config.block_size
        for row in step.rows:
            written = range(row.start, row.start + row.num_tokens)
            self.fill_with_nan([row.block_table[p // size] * size + p % size for p in written])

    def fill_with_nan(self, slots: Sequence[int]) -> None:
        for memory in (self.inner.cache.k, self.inner.cache.v):
            memory.flatten(1, 2)[:, torch.tensor(slots, dtype=torch.int64)] = torch.nan  # (L, slots, KH, D)

    def forward(self, step: ScheduledStep) -> ExecutorOutput:
        return self.inner.execute(step)


class KeepsLogits:
    """A model that keeps the logits of every position it computes, not only of those that are sampled."""

    def __init__(self, model: Any) -> None:
        self.model, self.device, self.dtype = model, model.device, model.dtype
        self.logits: dict[tuple[str, int], list[Tensor]] = {}  # (request, position) → (V,), each time it ran

    def forward(self, batch: PackedBatch, cache: KVCache, meta: AttentionMetadata) -> Tensor:
        rows = np.arange(len(batch.token_ids))
        logits: Tensor = self.model.forward(replace(batch, sample_indices=rows), cache, meta)  # (T, V)
        owner = np.searchsorted(batch.query_start_loc, rows, side="right") - 1  # (T,)
        for t in np.flatnonzero(batch.slot_mapping >= 0):
            key = (batch.request_ids[owner[t]], int(batch.positions[t]))
            self.logits.setdefault(key, []).append(logits[t])
        return logits[torch.from_numpy(batch.sample_indices)]


# ── the theorems ──────────────────────────────────────────────────────────────────────────────────────────


class SameTokensAsAlone(Law):
    """However it is batched, chunked, preempted or attended, a request gets the tokens it gets alone."""

    def __init__(self, make: MakeEngine) -> None:
        self.make = make

    def ended(self, run: Run) -> None:
        for name, request in run.requests.items():
            expected, output = alone(self.make, request), run.engine.outputs[name]
            want, got = list(expected.tokens[: expected_length(run, name)]), output.token_ids
            if output.finish_reason == "abort":
                want = want[: len(got)]
            n = next((n for n, pair in enumerate(zip(got, want, strict=False)) if pair[0] != pair[1]), None)
            if n is not None and not _is_sure(expected.logits[request.num_prompt_tokens - 1 + n]):
                continue  # two tokens as good as equally likely: either is right, and so is what follows
            if got != want:
                why = f"{output.finish_reason}: {output.error}" if output.error else output.finish_reason
                raise Counterexample(f"{name} gets {got} ({why}), alone it gets {want}")


class SameBitsAsAlone(Law):
    """On the default CPU path a request's fp32 logits are the same bits alone and in any batch or chunks."""

    def __init__(self, make: MakeEngine) -> None:
        self.make = make

    def ended(self, run: Run) -> None:
        for (name, position), rows in sorted(run.engine.executor.model.logits.items(), key=_position):  # type: ignore[attr-defined]
            want = alone(self.make, run.requests[name]).logits[position]
            for row in rows:
                if not torch.equal(row, want):
                    off = float((row - want).abs().max())
                    raise Counterexample(
                        f"{name}'s logits at position {position} have other bits than alone: the largest "
                        f"difference is {off:.1e}, where the largest logit is {float(want.abs().max()):.1e}"
                    )


def _position(item: tuple[tuple[str, int], Any]) -> int:
    return item[0][1]


def _is_sure(logits: Tensor) -> bool:
    first, second = logits.topk(2).values.tolist()
    return bool(first - second > MARGIN * float(logits.abs().max()))


def _watched_engine(make: MakeEngine, example: Serving, trace: Path | None) -> Engine:
    engine = make(example.config, trace)
    engine.executor = WatchedLlama(engine.executor)
    return engine


def _check(
    law: Callable[[MakeEngine], Law], make: MakeEngine, example: Serving, trace: Path | None = None
) -> None:
    serve(partial(_watched_engine, make, example, trace), example, law(make))


def _examples(attention: tuple[str, ...], backends: tuple[str, ...], scope: Scope) -> SearchStrategy[Serving]:
    return servings(
        max_requests=6 if scope.cost > 1 else 3,
        longest_prompt=20,
        batching=("chunked", "static", "continuous", "static"),
        attention=attention,
        backends=backends,
        block_sizes=(4, 1, 2, 3, 8, 16),
    )


ENGINE = (
    Theorem(
        "same_tokens_as_alone_on_a_model",
        "engine",
        str(SameTokensAsAlone.__doc__),
        partial(_examples, ("paged", "varlen", "mask"), ("auto", "torch")),
        partial(_check, SameTokensAsAlone),
        max_examples=150,
    ),
    Theorem(
        "same_bits_as_alone",
        "engine",
        str(SameBitsAsAlone.__doc__),
        partial(_examples, ("paged", "varlen"), ("auto",)),
        partial(_check, SameBitsAsAlone),
        max_examples=100,
    ),
)
