"""The engine: schedule → execute → sample → update → record, once a step.

It owns the requests and the clock. It does not choose who runs (`scheduling/`), runs no model
(`executors.py`), knows no rule of when a request ends (`ending.py`), and draws nothing (`tui/`, `cli.py`):
all that anyone shows or measures is in the `StepRecord` of each step.
"""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tinycb import generation
from tinycb.config import EngineConfig
from tinycb.ending import ending_after
from tinycb.executors import Executor, ExecutorOutput, ScheduledStep
from tinycb.generation import Delta, Prompt
from tinycb.output_text import OutputText, TextTokenizer
from tinycb.recording import add_freed, describe, note_choice, note_failure
from tinycb.request import FinishReason, Request, RequestOutput, RequestStatus, SamplingParams
from tinycb.scheduling import (
    POLICIES,
    BlockPool,
    Decision,
    Reason,
    Scheduler,
    SchedulerOutput,
    check_choice,
    check_pool,
)
from tinycb.tracing.codec import TraceError
from tinycb.tracing.header import make_header
from tinycb.tracing.metrics import MetricsCollector
from tinycb.tracing.records import StepRecord
from tinycb.tracing.writer import TraceWriter

__all__ = ["Engine", "RecordSink"]


@dataclass(slots=True)
class _Live:
    """What the engine keeps of a request until its answer is given back."""

    request: Request
    text: OutputText
    end_ids: frozenset[int]
    prompt: str | None = None
    logprobs: list[dict[int, float]] = field(default_factory=list)
    finish_step: int = 0
    is_wanted: bool = True  # somebody will take the answer out


class RecordSink(Protocol):
    """Where an engine puts its records."""

    def write(self, record: StepRecord) -> None: ...

    def close(self) -> None: ...


class Engine:
    """Serves many requests at once, one step at a time.

    config: the knobs. executor: what runs a step. tokenizer: for text prompts, text output and stop strings.
    trace: a path, or anything with `write(record)` and `close()`, that every step goes to. If a trace cannot
    be written to its end, a warning and `trace_error` say so, and the run goes on.
    clock: in seconds; simulated time may stand in for it.

    Methods take a lock, so `astream` may run steps in a thread; a step is never run by two threads at once.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        tokenizer: TextTokenizer | None = None,
        *,
        trace: str | Path | RecordSink | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config = _resolve(config, executor)
        self.executor = executor
        self.tokenizer = tokenizer
        self.clock = clock
        assert config.num_blocks is not None
        assert config.max_model_len is not None
        self.max_model_len = config.max_model_len
        self.pool = BlockPool(config.num_blocks, config.block_size, config.prefix_caching)
        policy = POLICIES[config.batching] if isinstance(config.batching, str) else config.batching
        self.scheduler: Scheduler = policy(config, self.pool)
        self.metrics = MetricsCollector(config)
        self.outputs: dict[str, RequestOutput] = {}  # answers given back, until somebody takes them out
        self.step_count = 0
        self._live: dict[str, _Live] = {}
        self._next = StepRecord(step=0)  # collects what happens between steps
        self._names = 0
        self._seeds = random.Random()
        self._lock = threading.RLock()
        self.trace_error: TraceError | None = None  # set where the trace could not be written to its end
        if isinstance(trace, str | Path):
            header = make_header(config, model=executor.name, eos_token_ids=executor.eos_token_ids)
            trace = TraceWriter(trace, header)
        self._trace = trace

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        config: EngineConfig | None = None,
        *,
        trace: str | Path | RecordSink | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> Engine:
        """An engine on a Llama: a known name, a folder, a .gguf file or a hub id.

        Raises ValueError with one line that names what is missing or wrong, and what would be right.
        """
        from tinycb.executors import LlamaExecutor
        from tinycb.model.checkpoint import load

        config = config or EngineConfig()
        loaded = load(model, device=config.device, dtype=config.dtype, on_progress=on_progress)
        return cls(config, LlamaExecutor(loaded, config), loaded.tokenizer, trace=trace)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def add_request(self, request: Request, *, prompt: str | None = None) -> None:
        """Queue a request. prompt: its text, for the record.

        Raises ValueError if it can never be served; the refusal is in the next record, and nothing else
        is disturbed.
        """
        with self._lock:
            if not isinstance(request, Request):
                raise ValueError(f"add_request takes a Request, not {request!r:.80}")
            try:
                self.check_request(request)
            except ValueError as error:
                name = str(request.request_id)
                self._next.refused[name] = str(error)
                self._next.decisions.append(Decision(name, "refuse", Reason.REFUSED, {"why": str(error)}))
                raise
            params = request.sampling_params
            if request.arrival_time is None:
                request.arrival_time = self.clock()
            request.seed = params.seed if params.seed is not None else self._seeds.getrandbits(63)
            end_ids = frozenset(params.stop_token_ids)
            if not params.ignore_eos:
                end_ids |= frozenset(self.executor.eos_token_ids)
            text = OutputText(self.tokenizer, params.stop)
            self._live[request.request_id] = _Live(request, text, end_ids, prompt)
            self.scheduler.add(request)
            self._next.arrived.append(request.request_id)
            texts = self.tokenizer if self._trace is not None else None
            self._next.new_requests.append(describe(request, prompt, texts))

    def check_request(self, request: Request) -> None:
        """Raise ValueError, saying what is wrong, if the request can never be served here."""
        request.check()
        name, length = request.request_id, request.num_tokens
        if name in self._live:
            raise ValueError(f"request_id {name!r} is in use by a request that has not finished")
        if length > self.max_model_len:
            raise ValueError(f"the prompt has {length} tokens, max_model_len is {self.max_model_len}")
        if length > self.pool.capacity:
            pool = f"{self.pool.num_blocks} blocks of {self.pool.block_size}"
            raise ValueError(
                f"the prompt has {length} tokens, all of the pool holds {self.pool.capacity} ({pool})"
            )
        largest, vocab_size = max(request.token_ids), self.executor.vocab_size
        if vocab_size is not None and largest >= vocab_size:
            raise ValueError(f"prompt_token_ids holds {largest}, the vocabulary has {vocab_size} tokens")
        if request.sampling_params.stop and self.tokenizer is None:
            raise ValueError("stop strings need a tokenizer, and this engine has none: use stop_token_ids")
        self.executor.check_request(request)

    def abort(self, request_id: str) -> bool:
        """Give a request up: its blocks are free at once. False if no such request is under way."""
        with self._lock:
            if not self.is_unfinished(request_id) or self._live[request_id].request.is_finished:
                return False
            live, record = self._live.pop(request_id), self._next
            request = live.request
            numbers = {"output": request.num_output_tokens, "computed": request.num_computed_tokens}
            record.aborted.append(request_id)
            record.decisions.append(Decision(request_id, "abort", Reason.ABORTED, numbers))
            freed = self.scheduler.remove(request)
            if freed:
                record.blocks_freed[request_id] = freed
            self._end(live, FinishReason.ABORT)
            self.outputs[request_id] = self._output(live)
            return True

    def discard(self, request: Request) -> None:
        """Give a request up and keep no answer, though its batch may hold it for some steps more."""
        with self._lock:
            name = request.request_id
            live = self._live.get(name)
            if live is not None and live.request is not request:
                return  # the id is somebody else's by now
            self.abort(name)
            self.outputs.pop(name, None)
            if live is not None:
                live.is_wanted = False

    def has_unfinished_requests(self) -> bool:
        """Whether any answer is still to be given back."""
        return bool(self._live)

    def is_unfinished(self, request_id: str) -> bool:
        return request_id in self._live

    def output_text(self, request_id: str) -> OutputText:
        """The text of an unfinished request, which grows as steps run. Raises KeyError if there is none."""
        return self._live[request_id].text

    def new_request_id(self) -> str:
        """A name that no request of this engine has."""
        while (name := f"r{self._names}") in self._live or name in self.outputs:
            self._names += 1
        self._names += 1
        return name

    # ── one step ──────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> StepRecord:
        """Run one iteration and return its record; with nothing to run, an empty one.

        An exception of the executor reaches the caller. The step is then undone: no block, count or cached
        prefix of it remains, and the next call tries again.
        """
        with self._lock:
            record = self._next
            record.time_start = self.clock()
            output = self.scheduler.schedule()  # if it raises, the next record has what came before this one
            self._next = StepRecord(step=record.step + 1)
            record.running = [request.request_id for request in self.scheduler.running]
            step = ScheduledStep(
                output.requests,
                output.scheduled,
                output.num_computed,
                output.block_tables,
                output.sampling,
                output.pad,
            )
            try:
                if self.config.check:
                    check_choice(self.scheduler, output)
                result = self.executor.execute(step) if output.scheduled else ExecutorOutput({})
                if not isinstance(result, ExecutorOutput):
                    raise TypeError(f"the executor must return an ExecutorOutput, not {result!r:.80}")
                result.check(step)
            except BaseException as error:
                self.scheduler.undo(output)
                note_failure(record, output, self.scheduler, error)
                self._close_record(record, [])
                raise
            note_choice(record, output, step, self.scheduler)
            self._update(output, result, record)
            self._close_record(record, self._let_go(output, record))
            return record

    def step_unless_past(self, step_count: int, request: Request) -> None:
        """Step, unless the request has ended or another thread has stepped since `step_count`."""
        with self._lock:
            if self.step_count == step_count and not request.is_finished:
                self.step()

    def _update(self, output: SchedulerOutput, result: ExecutorOutput, record: StepRecord) -> None:
        """Advance every request by what it ran, give each its token, and end those that are done."""
        scheduled, token_ids, logprobs = output.scheduled, result.token_ids, result.logprobs
        for request in output.requests:
            request.num_computed_tokens += scheduled.get(request.request_id, 0)
        texts = self.tokenizer if self._trace is not None else None
        sampled, max_model_len, capacity = record.sampled, self.max_model_len, self.pool.capacity
        for request in output.sampling:
            name = request.request_id
            token = token_ids.get(name)
            if token is None:
                continue
            request.token_ids.append(token)
            sampled[name] = token
            if texts is not None:
                record.sampled_texts[name] = texts.token_text(token)
            live = self._live[name]
            if name in logprobs:
                live.logprobs.append(logprobs[name])
            ending = ending_after(request, live.text, live.end_ids, max_model_len, capacity)
            if ending is not None:
                record.decisions.append(Decision(name, "finish", ending.reason, ending.numbers))
                self._finish(live, ending.finish_reason, record)
        for name, error in result.errors.items():
            live = self._live[name]
            live.request.error = record.errors[name] = error
            for block_id in set(output.blocks_cached) & set(live.request.block_table):
                self.pool.uncache(block_id)  # what went wrong is not to be shared
                output.blocks_cached.remove(block_id)
            record.decisions.append(Decision(name, "finish", Reason.FAILED, {"error": error}))
            self._finish(live, FinishReason.ERROR, record)

    def _finish(self, live: _Live, finish_reason: FinishReason, record: StepRecord) -> None:
        self._end(live, finish_reason)
        live.finish_step = record.step
        record.finished[live.request.request_id] = finish_reason.value

    def _end(self, live: _Live, finish_reason: FinishReason) -> None:
        live.text.close()
        live.request.finish_reason = finish_reason
        live.request.status = RequestStatus.FINISHED

    def _let_go(self, output: SchedulerOutput, record: StepRecord) -> list[_Live]:
        """The scheduler says whose answers go back now: with static batching, a whole batch's."""
        returned = []
        for request in self.scheduler.update(output):
            live = self._live.get(request.request_id)
            if live is None or live.request is not request:
                continue  # it was aborted, and its answer went back then
            returned.append(self._live.pop(request.request_id))
            record.returned.append(request.request_id)
            held = record.step - live.finish_step
            if held:
                numbers = {"held": held}
                record.decisions.append(Decision(request.request_id, "return", Reason.RETURNED, numbers))
        add_freed(record, output.blocks_freed)
        return returned

    def _close_record(self, record: StepRecord, returned: Sequence[_Live]) -> None:
        """The record is complete: measure it, give answers back, check, and write it down."""
        record.blocks_evicted, self.pool.evicted = self.pool.evicted, []
        record.time_end = self.clock()
        self.step_count += 1
        self.metrics.observe(record)
        for live in returned:
            answer = self._output(live)
            if live.is_wanted:
                self.outputs[answer.request_id] = answer
        if self._trace is not None and self.trace_error is None:
            try:
                self._trace.write(record)
            except TraceError as error:  # a full disk costs the trace, and no answer
                self.trace_error = error
                warnings.warn(f"{error}; the run goes on without its trace", RuntimeWarning, stacklevel=3)
        if self.config.check:
            requests = (*self.scheduler.running, *self.scheduler.waiting)
            check_pool(self.pool, {request.request_id: request.block_table for request in requests})

    def _output(self, live: _Live) -> RequestOutput:
        request = live.request
        assert request.finish_reason is not None
        return RequestOutput(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            token_ids=request.output_token_ids,
            text=live.text.text,
            finish_reason=request.finish_reason,
            logprobs=live.logprobs if request.sampling_params.logprobs is not None else None,
            metrics=self.metrics.finished(request.request_id),
            error=request.error,
            prompt=live.prompt,
        )

    # ── whole prompts: generation.py ──────────────────────────────────────────────────────────────────

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> list[RequestOutput]:
        """Serve prompts, text or token ids, to the end; the outputs are in their order.

        sampling_params: one for all, or one a prompt. on_step: called with each step's record.
        Every prompt is checked before anything runs; ValueError names the index of a bad one.
        """
        return generation.generate(self, prompts, sampling_params, on_step)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[Delta]:
        """Serve one prompt and yield its text as it comes. Leaving the loop early aborts the request."""
        return generation.stream(self, prompt, sampling_params)

    def astream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AsyncIterator[Delta]:
        """`stream` for an event loop. Many tasks may hold one each; whoever waits first steps for all."""
        return generation.astream(self, prompt, sampling_params)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """End the trace. What happened since the last step gets a record of its own."""
        with self._lock:
            if self._trace is None:
                return
            record = self._next
            if record.arrived or record.refused or record.aborted:
                self._next = StepRecord(step=record.step + 1)
                record.time_start = self.clock()
                record.num_waiting = len(self.scheduler.waiting)
                record.num_free_blocks = self.pool.num_free
                self._close_record(record, [])
            self._trace.close()
            self._trace = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _resolve(config: EngineConfig, executor: Executor) -> EngineConfig:
    """Fill in what depends on the executor: the number of blocks, and how long a request may get."""
    num_blocks = config.num_blocks or executor.num_blocks or 1024
    if executor.num_blocks is not None and num_blocks > executor.num_blocks:
        raise ValueError(f"num_blocks={num_blocks} is more than the {executor.num_blocks} there is room for")
    block_size = getattr(executor, "block_size", None)  # of one that keeps a cache
    if block_size not in (None, config.block_size):
        raise ValueError(
            f"block_size={config.block_size}, and the executor's cache has blocks of {block_size}"
        )
    limit = executor.max_model_len
    max_model_len = config.max_model_len or limit or num_blocks * config.block_size
    if limit is not None and max_model_len > limit:
        raise ValueError(f"max_model_len={max_model_len} is more than the model's own {limit}")
    return replace(config, num_blocks=num_blocks, max_model_len=max_model_len)
