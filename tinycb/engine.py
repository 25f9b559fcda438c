"""The engine: schedule → execute → sample → update → record, once a step.

It owns the requests and the clock. It does not choose who runs (`scheduling/`), runs no model
(`executors.py`), knows no rule of when a request ends (`ending.py`), and draws nothing (`tui/`, `cli.py`):
all that anyone shows or measures is in the `StepRecord` of each step.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tinycb import generation, recording
from tinycb.answers import Live
from tinycb.config import EngineConfig
from tinycb.ending import ending_after
from tinycb.execution import run_or_undo, unshare
from tinycb.executors import Executor, ExecutorOutput
from tinycb.generation import Delta, Prompt
from tinycb.limits import check_fits, settle
from tinycb.output_text import OutputText, TextTokenizer
from tinycb.recording import RecordSink
from tinycb.request import FinishReason, Request, RequestOutput, SamplingParams
from tinycb.scheduling import POLICIES, BlockPool, Decision, Reason, Scheduler, SchedulerOutput, check_pool
from tinycb.tracing.codec import TraceError
from tinycb.tracing.metrics import MetricsCollector
from tinycb.tracing.records import StepRecord

__all__ = ["Engine", "RecordSink"]


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
        self.config = config = settle(config, executor)
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
        self._live: dict[str, Live] = {}
        self._next = StepRecord(step=0)  # collects what happens between steps
        self._names = 0
        self._seeds = random.Random()
        self._lock = threading.RLock()
        self.trace_error: TraceError | None = None  # set where the trace could not be written to its end
        self._trace = recording.open_trace(trace, config, executor)

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
                recording.note_refusal(self._next, request, error)
                raise
            if request.arrival_time is None:
                request.arrival_time = self.clock()
            seed = request.sampling_params.seed
            request.seed = seed if seed is not None else self._seeds.getrandbits(63)
            live = Live.begin(request, prompt, self.tokenizer, self.executor.eos_token_ids)
            self._live[request.request_id] = live
            self.scheduler.add(request)
            recording.note_arrival(
                self._next, request, prompt, self.tokenizer if self._trace is not None else None
            )

    def check_request(self, request: Request) -> None:
        """Raise ValueError, saying what is wrong, if the request can never be served here."""
        request.check()
        if request.request_id in self._live:
            raise ValueError(
                f"request_id {request.request_id!r} is in use by a request that has not finished"
            )
        has_tokenizer = self.tokenizer is not None
        check_fits(request, self.max_model_len, self.pool, self.executor, has_tokenizer=has_tokenizer)

    def abort(self, request_id: str) -> bool:
        """Give a request up: its blocks are free at once. False if no such request is under way."""
        with self._lock:
            if not self.is_unfinished(request_id) or self._live[request_id].request.is_finished:
                return False
            live = self._live.pop(request_id)
            recording.note_abort(self._next, live.request, self.scheduler.remove(live.request))
            live.end(FinishReason.ABORT)
            self.outputs[request_id] = self._answer(live)
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

    def expects_arrivals(self) -> bool:
        """Whether a request was added ahead of its `arrival_time`."""
        now = self.clock()
        return any((live.request.arrival_time or 0.0) > now for live in self._live.values())

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
            try:
                result = run_or_undo(output, self.scheduler, self.executor, record, check=self.config.check)
            except BaseException:
                self._close_record(record, [])
                raise
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
            unshare(live.request, output, self.pool)
            record.decisions.append(Decision(name, "finish", Reason.FAILED, {"error": error}))
            self._finish(live, FinishReason.ERROR, record)

    def _finish(self, live: Live, finish_reason: FinishReason, record: StepRecord) -> None:
        live.end(finish_reason)
        live.finish_step = record.step
        record.finished[live.request.request_id] = finish_reason.value

    def _let_go(self, output: SchedulerOutput, record: StepRecord) -> list[Live]:
        """The scheduler says whose answers go back now: with static batching, a whole batch's."""
        returned = []
        for request in self.scheduler.update(output):
            live = self._live.get(request.request_id)
            if live is None or live.request is not request:
                continue  # it was aborted, and its answer went back then
            returned.append(self._live.pop(request.request_id))
            recording.note_return(record, request.request_id, live.finish_step)
        recording.add_freed(record, output.blocks_freed)
        return returned

    def _close_record(self, record: StepRecord, returned: Sequence[Live]) -> None:
        """The record is complete: measure it, give answers back, check, and write it down."""
        record.blocks_evicted, self.pool.evicted = self.pool.evicted, []
        record.time_end = self.clock()
        self.step_count += 1
        self.metrics.observe(record)
        for live in returned:
            answer = self._answer(live)
            if live.is_wanted:
                self.outputs[answer.request_id] = answer
        if self._trace is not None and self.trace_error is None:
            self.trace_error = recording.write(self._trace, record)
        if self.config.check:
            requests = (*self.scheduler.running, *self.scheduler.waiting)
            check_pool(self.pool, {request.request_id: request.block_table for request in requests})

    def _answer(self, live: Live) -> RequestOutput:
        return live.answer(self.metrics.finished(live.request.request_id))

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
        Every prompt is checked before anything runs; ValueError names the index of a bad one. StuckError, a
        RuntimeError, names a scheduler that runs nobody though somebody waits.
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
