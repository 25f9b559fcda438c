"""Runs: prompts served on the chapter's model, or tokens that are given, and what is left of either.

Every run writes a trace; tables, pictures and questions read it, as the visualizer does.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycb.config import EngineConfig
from tinycb.engine import Engine
from tinycb.request import FinishReason, Request, RequestOutput, SamplingParams
from tinycb.tracing import StepRecord, Totals, TraceReader
from tinycb.tracing.header import config_or_similar
from tinycb.tracing.metrics import MetricsCollector
from tinycb.view.comparison import PolicyResult
from tinycb.view.run_state import Frame, RunInfo, RunState
from tinycb.view.signs import letter

if TYPE_CHECKING:
    from tinycb.model.checkpoint import LoadedModel

__all__ = ["CACHE_TOKENS", "Run", "lesson_config", "recorded_run", "scripted_run", "served_run"]

CACHE_TOKENS = 4096  # what a lesson's pool holds, whatever its block size


@dataclass(frozen=True)
class Run:
    """A run that is over. path: its trace. outputs: in the order of the requests.

    config: with `num_blocks` and `max_model_len` filled in. totals: `tinycb.tracing.Totals`.
    is_measured: its seconds were taken on this machine; of a scripted run they mean nothing.
    """

    name: str
    config: EngineConfig
    model: str
    path: Path
    outputs: list[RequestOutput]
    totals: Totals
    is_measured: bool

    @cached_property
    def records(self) -> Sequence[StepRecord]:
        """Every step, with its block tables and packed arrays."""
        return TraceReader(self.path)

    @cached_property
    def names(self) -> list[str]:
        return [output.request_id for output in self.outputs]

    def __getitem__(self, request_id: str) -> RequestOutput:
        """The output of a request, by its letter."""
        return self.outputs[self.names.index(request_id)]

    @property
    def seconds(self) -> float:
        return self.totals.duration

    @property
    def result(self) -> PolicyResult:
        """As `tinycb.view.comparison` takes it."""
        steps = [sum(r.scheduled.values()) + r.num_padded for r in self.records]
        gaps = [gap for output in self.outputs if output.metrics is not None for gap in output.metrics.itl]
        tokens = {output.request_id: output.token_ids for output in self.outputs}
        return PolicyResult(self.name, self.totals, tokens, max(steps, default=0), max(gaps, default=None))

    def state(self, last: int | None = None) -> RunState:
        """What the records add up to, up to step `last`: what a timeline is drawn from."""
        state = RunState(self.info, self.names)
        for record in self.records if last is None else self.records[: last + 1]:
            state.observe(record)
        return state

    def frame(self, step: int) -> Frame:
        """Everything that the picture of a step shows."""
        return self.state(step).frame()

    @property
    def info(self) -> RunInfo:
        config = self.config
        budget = config.max_num_batched_tokens if config.batching == "chunked" else None
        batching = config.batching if isinstance(config.batching, str) else config.batching.__name__
        return RunInfo(self.model, batching, config.attention, config.num_blocks or 0, budget)


def lesson_config(**changes: Any) -> EngineConfig:
    """Four places, a pool of `CACHE_TOKENS`, no prefix cache; and what the chapter changes."""
    size = changes.get("block_size", 16)
    defaults = {"max_num_seqs": 4, "num_blocks": -(-CACHE_TOKENS // size), "prefix_caching": False}
    return EngineConfig(**{**defaults, **changes})


def served_run(
    loaded: LoadedModel,
    name: str,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[str | None],
    params: Sequence[SamplingParams],
    arrive: Sequence[int],
    config: EngineConfig,
) -> Run:
    """Serve prompts (token ids) on the model. arrive: the step before which each one comes."""
    from tinycb.executors import LlamaExecutor

    executor = LlamaExecutor(loaded, config)
    path = _folder() / f"{name}.jsonl"
    with Engine(config, executor, loaded.tokenizer, trace=path) as engine:
        requests = [
            Request(letter(i), list(ids), given)
            for i, (ids, given) in enumerate(zip(prompts, params, strict=True))
        ]
        outputs = _serve(engine, requests, texts, arrive)
    return Run(name, engine.config, loaded.name, path, outputs, engine.metrics.totals, True)


def scripted_run(
    name: str,
    requests: Mapping[str, tuple[int | Sequence[int], int | Sequence[int]]],
    arrive: Mapping[str, int],
    config: EngineConfig,
) -> Run:
    """No model: prompts and answers are given as token ids, or as counts, of tokens nobody else has."""
    from tinycb.executors import ScriptedExecutor

    scripts, made = {}, []
    for index, (who, (prompt, answer)) in enumerate(requests.items()):
        ids = [1000 * (index + 1) + i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
        script = [1000 * (index + 1) + 500 + i for i in range(answer)] if isinstance(answer, int) else answer
        scripts[who] = list(script)
        made.append(Request(who, ids, SamplingParams(max_tokens=len(script), ignore_eos=True)))
    path = _folder() / f"{name}.jsonl"
    ticks = [0.0]
    with Engine(config, ScriptedExecutor(scripts), trace=path, clock=lambda: ticks[0]) as engine:
        order = [arrive.get(request.request_id, 0) for request in made]
        outputs = _serve(engine, made, [None] * len(made), order, ticks)
    return Run(name, engine.config, "scripted", path, outputs, engine.metrics.totals, False)


def recorded_run(name: str, path: str | Path) -> Run:
    """A run that somebody else made, from its trace. What it does not see the end of counts as aborted."""
    reader = TraceReader(path)
    config = config_or_similar(reader.header)
    metrics, outputs = MetricsCollector(config), dict[str, RequestOutput]()
    for record in reader:
        metrics.observe(record)
        for new in record.new_requests:
            ids = list(new.prompt_token_ids)
            outputs[new.request_id] = RequestOutput(
                new.request_id, ids, [], "", FinishReason.ABORT, prompt=new.prompt
            )
        for request_id, token in record.sampled.items():
            outputs[request_id].token_ids.append(token)
        for request_id, reason in record.finished.items():
            outputs[request_id].finish_reason = FinishReason(reason)
    model = str(reader.header.get("model"))
    return Run(name, config, model, Path(path), list(outputs.values()), metrics.totals, False)


def _serve(
    engine: Engine,
    requests: Sequence[Request],
    texts: Sequence[str | None],
    arrive: Sequence[int],
    ticks: list[float] | None = None,
) -> list[RequestOutput]:
    to_come = sorted(zip(arrive, range(len(requests)), strict=True))
    while to_come or engine.has_unfinished_requests():
        while to_come and to_come[0][0] <= engine.step_count:
            _, index = to_come.pop(0)
            engine.add_request(requests[index], prompt=texts[index])
        if ticks is not None:
            ticks[0] += 1.0
        engine.step()
    return [engine.outputs[request.request_id] for request in requests]


_FOLDERS: list[Path] = []


def _folder() -> Path:
    """Where the runs of this process lie until it ends."""
    if not _FOLDERS:
        _FOLDERS.append(Path(tempfile.mkdtemp(prefix="tinycb-learn-")))
        atexit.register(shutil.rmtree, _FOLDERS[0], ignore_errors=True)
    folder = _FOLDERS[0] / str(len(list(_FOLDERS[0].iterdir())))
    folder.mkdir()
    return folder
