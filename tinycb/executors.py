"""What runs a step: the scheduler's choice in, one new token a sampling request out.

`ScriptedExecutor` is given the tokens and runs nothing, so a scheduler can be tested, replayed or compared
without a model. `CostModelExecutor` runs nothing either, and lets a simulated clock go on by what the step
would cost on some device. `LlamaExecutor` packs the rows, runs the model and samples. Anything with the
attributes and the methods of `Executor` can stand in for any of them.

Nothing here decides who runs (`scheduling/`) or when a request ends (`engine.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

from tinycb.config import EngineConfig, parse_bytes
from tinycb.costs.roofline import CostModel, StepWork
from tinycb.memory import kv_bytes_per_token, num_blocks_for
from tinycb.packing import Row, pack
from tinycb.request import Request

if TYPE_CHECKING:
    from tinycb.model.checkpoint import LoadedModel
    from tinycb.model.decode_graphs import DecodeGraphs

__all__ = [
    "CostModelExecutor",
    "Executor",
    "ExecutorOutput",
    "LlamaExecutor",
    "ScheduledStep",
    "ScriptedExecutor",
    "SimulatedClock",
    "work_of_step",
]


class ScheduledStep:
    """The rows of one forward, in batch order, and the request of each.

    requests: row by row. scheduled, num_computed, block_tables: by request id; an idle slot of a static batch
    has none. sampling: the requests that get a token. pad: fill every row to the longest, as a static batch
    does. rows: the same, ready for `packing.pack`; made when first asked for.
    """

    def __init__(
        self,
        requests: list[Request],
        scheduled: Mapping[str, int],
        num_computed: Mapping[str, int],
        block_tables: Mapping[str, list[int]],
        sampling: list[Request],
        pad: bool = False,
    ) -> None:
        self.requests = requests
        self.scheduled = scheduled
        self.num_computed = num_computed
        self.block_tables = block_tables
        self.sampling = sampling
        self.pad = pad

    @cached_property
    def rows(self) -> list[Row]:
        samples = {request.request_id for request in self.sampling}
        return [
            Row(
                request_id=(name := request.request_id),
                token_ids=request.token_ids,
                start=self.num_computed.get(name, 0),
                num_tokens=self.scheduled.get(name, 0),
                block_table=self.block_tables.get(name, ()),
                samples=name in samples,
            )
            for request in self.requests
        ]


@dataclass(slots=True)
class ExecutorOutput:
    """One token for each row that samples; a request that alone went wrong is in `errors` instead.

    logprobs: for requests that ask, `{token_id: logprob}` at this position.
    """

    token_ids: dict[str, int]
    logprobs: dict[str, dict[int, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def check(self, step: ScheduledStep) -> None:
        """Raise RuntimeError unless every sampling request of the step got a token or an error.

        Integers of another kind, such as numpy's, become `int`. Tokens of rows that do not sample are let be.
        """
        token_ids, errors = self.token_ids, self.errors
        for request in step.sampling:
            token: Any = token_ids.get(name := request.request_id)
            if type(token) is int and token >= 0:
                continue
            if token is None:
                if name not in errors:
                    raise RuntimeError(f"the executor returned neither a token nor an error for {name!r}")
            elif isinstance(token, Integral) and not isinstance(token, bool) and int(token) >= 0:
                token_ids[name] = int(token)
            else:
                raise RuntimeError(
                    f"the executor's token for {name!r} must be a non-negative integer, not {token!r:.80}"
                )
        for name, error in errors.items():
            if name not in step.scheduled:
                raise RuntimeError(
                    f"the executor returned an error for {name!r}, which this step does not run"
                )
            if token_ids.get(name) is not None:
                raise RuntimeError(f"the executor returned both a token and an error for {name!r}")
            if not isinstance(error, str):
                raise RuntimeError(f"the executor's error for {name!r} must be a string, not {error!r:.80}")


class Executor(Protocol):
    """What the engine needs of whatever runs its steps.

    name: for the trace. vocab_size, max_model_len, num_blocks: limits, or None where there is none.
    eos_token_ids: tokens that end a request unless it says `ignore_eos`.
    """

    name: str
    vocab_size: int | None
    max_model_len: int | None
    num_blocks: int | None
    eos_token_ids: Collection[int]

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        """Run one step. An exception undoes the step and reaches the caller of `Engine.step`."""
        ...

    def check_request(self, request: Request) -> None:
        """Raise ValueError if this executor could never serve the request."""
        ...


class ScriptedExecutor:
    """Answers with the tokens it was given: `{"r0": [5, 6, 7]}` says what r0 would sample, in order.

    The n-th token of a request is the n-th of its script, whatever was preempted and computed again in
    between. A request without a script is refused; one that outlives its script ends with reason `error`.
    """

    def __init__(
        self,
        scripts: Mapping[str, Sequence[int]],
        *,
        eos_token_ids: Collection[int] = (),
        vocab_size: int | None = None,
        max_model_len: int | None = None,
        name: str = "scripted",
    ) -> None:
        self.scripts = {request_id: list(tokens) for request_id, tokens in scripts.items()}
        self.eos_token_ids: Collection[int] = frozenset(eos_token_ids)
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self.num_blocks: int | None = None
        self.name = name

    def check_request(self, request: Request) -> None:
        if request.request_id not in self.scripts:
            known = ", ".join(map(repr, list(self.scripts)[:5])) or "none"
            raise ValueError(
                f"request_id {request.request_id!r} has no script; there are scripts for {known}"
            )

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        output = ExecutorOutput({})
        for request in step.sampling:
            script, index = self.scripts[request.request_id], request.num_output_tokens
            if index < len(script):
                output.token_ids[request.request_id] = script[index]
            else:
                output.errors[request.request_id] = f"the script ends after {len(script)} tokens"
        return output


class SimulatedClock:
    """Seconds that pass only when somebody says so: `Engine(…, clock=clock)`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def work_of_step(cost: CostModel, step: ScheduledStep) -> StepWork:
    """The bytes and operations of a step, its padding included."""
    new = forward = sum(step.scheduled.values())
    if step.pad:
        forward = len(step.requests) * max(step.scheduled.values(), default=0)
    seen = pairs = sum(step.num_computed.values()) + new
    if new != len(step.scheduled):  # somebody runs several tokens, and each sees one more
        pairs = sum(
            count * (step.num_computed[name] + count) - count * (count - 1) // 2
            for name, count in step.scheduled.items()
        )
    return cost.work_of(forward, len(step.sampling), seen, new, pairs)


class CostModelExecutor:
    """Runs nothing: the clock goes on by the *modelled* seconds of the step, and every token is 0.

    Which token it is changes nothing that is scheduled; requests end at their `max_tokens`. The schedule is
    the real one and exact; only its seconds are modelled.

    num_blocks, max_model_len: limits, or None where there is none.
    """

    def __init__(
        self,
        cost: CostModel,
        clock: SimulatedClock,
        *,
        num_blocks: int | None = None,
        max_model_len: int | None = None,
        name: str = "cost model",
    ) -> None:
        self.cost = cost
        self.clock = clock
        self.name = name
        self.vocab_size: int | None = cost.shape.vocab_size
        self.num_blocks = num_blocks
        self.max_model_len = max_model_len
        self.eos_token_ids: Collection[int] = ()

    def check_request(self, request: Request) -> None:
        """Whatever fits can be served."""

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        self.clock.now += self.cost.floor(work_of_step(self.cost, step)).seconds
        return ExecutorOutput(dict.fromkeys([request.request_id for request in step.sampling], 0))


class LlamaExecutor:
    """Packs the rows, runs the model over its paged KV cache, and samples.

    Of the configuration it reads attention, backend, block_size, num_blocks, kv_cache_memory and
    max_model_len; device and dtype were settled when the model was loaded.

    Raises ValueError where `max_model_len` is past what the model can serve, or the cache does not fit.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        from tinycb.model.kv_cache import KVCache

        self.model, shape = loaded.model, loaded.config
        self.config = config
        self.name = loaded.name
        self.vocab_size: int | None = shape.vocab_size
        self.eos_token_ids: Collection[int] = frozenset(loaded.eos_token_ids)
        limit = shape.max_model_len_limit
        if config.max_model_len is not None and config.max_model_len > limit:
            raise ValueError(
                f"max_model_len={config.max_model_len} is more than {self.name} can serve, {limit}: "
                f"{shape.limit_reason}"
            )
        self.max_model_len: int | None = config.max_model_len or limit
        token_bytes = kv_bytes_per_token(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, str(self.model.dtype)
        )
        memory = parse_bytes(config.kv_cache_memory, "kv_cache_memory")
        num_blocks = config.num_blocks or num_blocks_for(memory, config.block_size, token_bytes)
        self.num_blocks: int | None = num_blocks
        self.block_size = config.block_size
        asked = "" if config.num_blocks else f"kv_cache_memory={config.kv_cache_memory!r}"
        self.cache = KVCache(shape, num_blocks, config.block_size, self.model.device, self.model.dtype, asked)
        self.graphs = self._decode_graphs(config) if self.model.device.type == "cuda" else None

    def _decode_graphs(self, config: EngineConfig) -> DecodeGraphs | None:
        from tinycb.model.decode_graphs import DecodeGraphs, record_cuda_graph

        if config.attention != "paged" or config.backend not in ("auto", "triton"):
            return None  # the other paths gather keys, whose number is another in every step
        limit = min(self.max_model_len or 0, (self.num_blocks or 0) * self.block_size)
        record = record_cuda_graph()
        return DecodeGraphs(self.model, self.cache, config.backend, config.max_num_seqs, limit, record)

    def check_request(self, request: Request) -> None:
        assert self.vocab_size is not None
        params = request.sampling_params
        for name, ids in (
            ("prompt_token_ids", request.token_ids),
            ("stop_token_ids", params.stop_token_ids),
        ):
            largest = max(ids, default=0)
            if largest >= self.vocab_size:
                raise ValueError(
                    f"{name} holds {largest}, and {self.name} has {self.vocab_size} tokens: "
                    f"ids go from 0 to {self.vocab_size - 1}"
                )
        if params.logprobs is not None and params.logprobs > self.vocab_size:
            raise ValueError(
                f"logprobs must be at most {self.vocab_size}, the vocabulary of {self.name}, "
                f"not {params.logprobs}"
            )

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        from tinycb.model.attention import AttentionMetadata
        from tinycb.model.sampling import sample

        block_size = self.config.block_size
        batch = pack(step.rows, block_size, pad=step.pad)
        if self.graphs is not None and self.graphs.fits(batch):
            logits = self.graphs.forward(batch)  # (rows that sample, V)
        else:
            meta = AttentionMetadata.build(batch, self.config.attention, self.config.backend, self.cache)
            logits = self.model.forward(batch, self.cache, meta)  # (rows that sample, V)
        sampling = {request.request_id: request for request in step.sampling}
        requests = [sampling[request_id] for request_id in batch.sample_request_ids]
        sampled = sample(logits, requests, self.eos_token_ids)
        return ExecutorOutput(sampled.token_ids, sampled.logprobs, sampled.errors)
