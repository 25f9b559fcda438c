"""What a recording scheduler does while vLLM schedules: it keeps references, and looks at the clock.

A mixin in front of a v1 scheduler class. Everything that a step needs is handed in one tuple to another
thread (`transcript.py`), which works out the record and writes it while the model runs. Only where something
is about to be lost, a preemption or an abort, is it noted at once. An error of the recorder's own ends the
recording with one line in the log, and never reaches the engine.

Imports neither vLLM nor torch. Next: `transcript.py`.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from tinycb.adapters.events import Abort, Arrival, Event, Preemption, Step
from tinycb.adapters.transcript import Transcript
from tinycb.adapters.vllm_header import header_of, reason_not_to_record, rules_of
from tinycb.tracing.writer import TraceWriter

__all__ = ["TESTED_VERSIONS", "TRACE_VARIABLE", "Recorder", "check_hooks"]

TRACE_VARIABLE = "TINYCB_TRACE"
TESTED_VERSIONS = ("0.32.0",)
_HOOKS = (
    *("schedule", "update_from_output", "add_request", "finish_requests", "shutdown"),
    *("_preempt_request", "_get_local_prefix_cache_hit"),
)
_CLOSING_TIME = 10.0  # seconds that writing the rest may take at the end

logger = logging.getLogger("vllm.tinycb")  # below vLLM's own logger, so that it is heard


def check_hooks(scheduler: type, version: str) -> None:
    """Raise ImportError if this vLLM lacks what the recorder hangs on; warn if it was never tried."""
    missing = [name for name in _HOOKS if not callable(getattr(scheduler, name, None))]
    tested = ", ".join(TESTED_VERSIONS)
    if missing:
        raise ImportError(
            f"vLLM {version} cannot be recorded: its scheduler has no {', '.join(missing)}; "
            f"the versions that can be are {tested}"
        )
    if version.split("+")[0] not in TESTED_VERSIONS:
        logger.warning("tinycb's recorder is tested with vLLM %s, and this is %s", tested, version)


class _Chosen(NamedTuple):
    """A step that was scheduled and whose tokens are still to come."""

    output: Any
    step: Step


class Tape:
    """What has been kept and not written yet, and the thread that writes it."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.events: list[Event] = []  # since the last step was scheduled
        self.preemptions: list[Preemption] = []
        self.in_flight: deque[_Chosen] = deque()
        self.last_hit: tuple[Any, Any] | None = None
        self.spent = 0.0  # seconds in the recorder that no record tells of yet
        self._queue: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tinycb-trace", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        self.put = self._queue.put

    def _work(self) -> None:
        while (step := self._queue.get()) is not None:
            try:
                self.transcript.take(step)
            except Exception as error:
                give_up(f"the trace ends here: {type(error).__name__}: {error}")
                while self._queue.get() is not None:
                    pass  # keep no references
                return

    def close(self) -> None:
        """Write what is left. Closing twice does nothing."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(_CLOSING_TIME)
            try:
                self.transcript.close(self.events)
            except Exception as error:
                give_up(f"the trace ends early: {type(error).__name__}: {error}")


def give_up(why: str) -> None:
    logger.warning("tinycb records nothing more of this engine, which runs on: %s", why)


def open_tape(scheduler: Any) -> Tape | None:
    """A tape on the file that TINYCB_TRACE names; None, and a line in the log, if nothing can be recorded."""
    path = os.environ.get(TRACE_VARIABLE)
    if not path:
        logger.warning("tinycb records nothing: set %s to the file to write", TRACE_VARIABLE)
        return None
    try:
        reason = reason_not_to_record(scheduler)
        if reason is not None:
            logger.warning("tinycb records nothing: %s", reason)
            return None
        parallel = scheduler.parallel_config
        if getattr(parallel, "data_parallel_size", 1) > 1:
            path = f"{path}.{parallel.data_parallel_rank}"
        header = header_of(scheduler)
        transcript = Transcript(TraceWriter(path, header), rules_of(scheduler), header["num_blocks"])
    except Exception as error:
        logger.warning("tinycb records nothing: %s", error)
        return None
    logger.info("tinycb records this engine's steps in %s", path)
    return Tape(transcript)


def _tables_of_admitted(output: Any) -> dict[str, list[int]]:
    """Copies, because a worker in this process makes these very lists its own and lets them grow."""
    tables = {new.req_id: new.block_ids[0].copy() for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    if cached.resumed_req_ids:
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                tables[name] = blocks[0].copy()
    return tables


class Recorder:
    """In front of a v1 scheduler class, `class R(Recorder, Scheduler)`: the same decisions, recorded."""

    _tape: Tape | None = None

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._tape = open_tape(self)

    def schedule(self, *args: Any, **settings: Any) -> Any:
        tape = self._tape
        if tape is None:
            return super().schedule(*args, **settings)  # type: ignore[misc]
        start = time.monotonic()
        output = super().schedule(*args, **settings)  # type: ignore[misc]
        chosen = time.monotonic()
        try:
            this: Any = self
            waiting, holding = this.waiting, this.kv_holding_waiting
            num_waiting = len(waiting) + len(holding)
            head = (holding or waiting).peek_request() if num_waiting else None
            step = Step(
                output,
                _tables_of_admitted(output),
                tape.events,
                tape.preemptions,
                this.running.copy(),
                num_waiting,
                head,
                head is not None and head in this.deferred_waiting,
                tape.last_hit,
                this.kv_cache_manager.block_pool.get_num_free_blocks(),
                start,
                chosen,
            )
            tape.events, tape.preemptions, tape.last_hit = [], [], None
            tape.in_flight.append(_Chosen(output, step))
            tape.spent += time.monotonic() - chosen
        except Exception as error:
            self._stop(error)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **settings: Any) -> Any:
        tape = self._tape
        if tape is None:
            return super().update_from_output(scheduler_output, *args, **settings)  # type: ignore[misc]
        start = time.monotonic()
        result = super().update_from_output(scheduler_output, *args, **settings)  # type: ignore[misc]
        end = time.monotonic()
        try:
            while tape.in_flight:  # a step without a result was thrown away by the engine
                chosen = tape.in_flight.popleft()
                if chosen.output is scheduler_output:
                    step = chosen.step
                    step.result, step.update_start, step.end, step.spent = result, start, end, tape.spent
                    if tape.in_flight:
                        step.later = [other.output.num_scheduled_tokens for other in tape.in_flight]
                    tape.spent = 0.0
                    tape.put(step)
                    break
            tape.spent += time.monotonic() - end
        except Exception as error:
            self._stop(error)
        return result

    def add_request(self, request: Any, *args: Any, **settings: Any) -> Any:
        result = super().add_request(request, *args, **settings)  # type: ignore[misc]
        if self._tape is not None:
            self._tape.events.append(Arrival(request))
        return result

    def finish_requests(self, request_ids: Any, finished_status: Any, *args: Any, **settings: Any) -> Any:
        tape = self._tape
        if tape is None:
            return super().finish_requests(request_ids, finished_status, *args, **settings)  # type: ignore[misc]
        this: Any = self
        if request_ids is not None and not isinstance(request_ids, str):
            request_ids = list(request_ids)
        names = [request_ids] if isinstance(request_ids, str) else request_ids
        known = [this.requests.get(name) for name in (this.requests if names is None else names)]
        counts = {r.request_id: (r.num_output_tokens, r.num_computed_tokens) for r in known if r is not None}
        result = super().finish_requests(request_ids, finished_status, *args, **settings)  # type: ignore[misc]
        try:
            for request in result:
                name = request.request_id
                tape.events.append(Abort(name, *counts[name], finished_status.name))
        except Exception as error:
            self._stop(error)
        return result

    def _preempt_request(self, request: Any, *args: Any, **settings: Any) -> Any:
        if self._tape is not None:
            try:
                self._tape.preemptions.append(self._describe_preemption(request))
            except Exception as error:
                self._stop(error)
        return super()._preempt_request(request, *args, **settings)  # type: ignore[misc]

    def _describe_preemption(self, victim: Any) -> Preemption:
        """For whom: the first running request that lacks blocks for what the budget lets it run."""
        this: Any = self
        pool, tables = this.kv_cache_manager.block_pool, this.kv_cache_manager
        free, computed = pool.get_num_free_blocks(), victim.num_computed_tokens
        budget, size = this.max_num_scheduled_tokens, this.block_size
        for request in [*this.running, victim]:
            wants = request.num_tokens_with_spec + request.num_output_placeholders
            num_tokens = min(wants - request.num_computed_tokens, budget)
            blocks = len(tables.get_block_ids(request.request_id)[0])
            needs = -(-(request.num_computed_tokens + num_tokens) // size) - blocks
            if needs > free:
                return Preemption(victim.request_id, computed, request.request_id, needs, free)
            budget -= num_tokens
        return Preemption(victim.request_id, computed, None, 0, free)

    def _get_local_prefix_cache_hit(self, request: Any) -> Any:
        found = super()._get_local_prefix_cache_hit(request)  # type: ignore[misc]
        if self._tape is not None:
            self._tape.last_hit = request, found[0]
        return found

    def shutdown(self) -> None:
        tape, self._tape = self._tape, None
        if tape is not None:
            tape.close()
        super().shutdown()  # type: ignore[misc]

    def _stop(self, error: Exception) -> None:
        tape, self._tape = self._tape, None
        give_up(f"{type(error).__name__}: {error}")
        if tape is not None:
            tape.close()
