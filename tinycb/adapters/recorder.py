"""What a recording scheduler does while vLLM schedules: it keeps references, and looks at the clock.

A mixin in front of a v1 scheduler class. Everything that a step needs is left in one tuple for another
thread (`transcript.py`), which works out the record and writes it while the model runs. Only where something
is about to be lost, a preemption or an abort, is it noted at once. An error of the recorder's own ends the
recording with one line in the log, and never reaches the engine; arguments are handed on whatever they are,
because vLLM's versions differ in them.

Imports neither vLLM nor torch. Next: `transcript.py`.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from time import monotonic
from typing import Any

from tinycb.adapters.events import Abort, Arrival, Chosen, Notes, Preemption, Step
from tinycb.adapters.transcript import Transcript
from tinycb.adapters.vllm_header import header_of, reason_not_to_record, rules_of
from tinycb.adapters.vllm_settings import TESTED_VERSIONS
from tinycb.tracing.writer import TraceWriter

__all__ = ["TRACE_VARIABLE", "Recorder", "check_hooks"]

TRACE_VARIABLE = "TINYCB_TRACE"
_HOOKS = (
    *("schedule", "update_from_output", "add_request", "finish_requests", "shutdown"),
    *("_preempt_request", "_get_local_prefix_cache_hit"),
)
_LOOK_EVERY = 0.004  # seconds
_CLOSING_TIME = 10.0  # seconds that writing the rest may take at the end
_MOST_BEHIND = 20_000  # steps not yet written: a disk that hangs must not fill the engine's memory

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


class Tape:
    """What has been kept and not written yet, and the thread that writes it.

    free: vLLM's queue of free blocks. notes: what happened besides a decode, since the last step was
    scheduled. in_flight: steps that were scheduled and whose tokens are still to come. The thread looks for
    finished steps every few milliseconds: waking it would cost the engine more than all the rest.
    """

    def __init__(self, transcript: Transcript, free: Any) -> None:
        self.transcript = transcript
        self.free = free
        self.notes: Notes | None = None
        self.in_flight: deque[Chosen] = deque()
        self.done: deque[Step] = deque()
        self.spent = 0.0  # seconds in the recorder that no record tells of yet
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tinycb-trace", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def note(self) -> Notes:
        if self.notes is None:
            self.notes = Notes()
        return self.notes

    def _work(self) -> None:
        try:
            while True:
                is_last = self._is_closing.is_set()
                while self.done:
                    self.transcript.take(self.done.popleft())
                if is_last:
                    self.transcript.close(self.notes.events if self.notes is not None else ())
                    return
                time.sleep(_LOOK_EVERY)
        except Exception as error:
            give_up(f"the trace ends here: {type(error).__name__}: {error}")
            self.done = deque(maxlen=0)  # keep no references

    def close(self) -> None:
        """Write what is left. Closing twice does nothing."""
        atexit.unregister(self.close)
        self._is_closing.set()
        self._thread.join(_CLOSING_TIME)


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
        free = scheduler.kv_cache_manager.block_pool.free_block_queue
        transcript = Transcript(TraceWriter(path, header), rules_of(scheduler), header["num_blocks"])
        tape = Tape(transcript, free)
    except Exception as error:
        logger.warning("tinycb records nothing: %s", error)
        return None
    logger.info("tinycb records this engine's steps in %s", path)
    return tape


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

    _tinycb_tape: Tape | None = None
    running: list[Any]  # these and the next are vLLM's
    waiting: Any
    kv_holding_waiting: Any
    deferred_waiting: set[Any]
    requests: dict[str, Any]
    kv_cache_manager: Any
    block_size: int
    max_num_scheduled_tokens: int

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._tinycb_tape = open_tape(self)

    def schedule(self, *args: Any, **settings: Any) -> Any:
        tape = self._tinycb_tape
        if tape is None:
            return super().schedule(*args, **settings)  # type: ignore[misc]
        start = monotonic()
        output = super().schedule(*args, **settings)  # type: ignore[misc]
        chosen = monotonic()
        try:
            if output.scheduled_new_reqs or output.scheduled_cached_reqs.resumed_req_ids:
                tape.note().tables = _tables_of_admitted(output)
            if self.waiting or self.kv_holding_waiting:
                _look_at_the_queue(self, tape.note())
            running, free = self.running[:], tape.free.num_free_blocks
            tape.in_flight.append((output, running, free, tape.notes, start, chosen))
            tape.notes = None
            tape.spent += monotonic() - chosen
        except Exception as error:
            _stop(self, error)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **settings: Any) -> Any:
        tape = self._tinycb_tape
        if tape is None:
            return super().update_from_output(scheduler_output, *args, **settings)  # type: ignore[misc]
        start = monotonic()
        result = super().update_from_output(scheduler_output, *args, **settings)  # type: ignore[misc]
        end = monotonic()
        try:
            in_flight = tape.in_flight
            while in_flight:  # a step without a result was thrown away by the engine
                chosen = in_flight.popleft()
                if chosen[0] is scheduler_output:
                    later = [other[0].num_scheduled_tokens for other in in_flight] if in_flight else ()
                    tape.done.append((chosen, result, start, end, tape.spent, later))
                    break
            if len(tape.done) > _MOST_BEHIND:
                raise OSError(f"{len(tape.done)} steps are waiting to be written")
            tape.spent = monotonic() - end
        except Exception as error:
            _stop(self, error)
        return result

    def add_request(self, request: Any, *args: Any, **settings: Any) -> Any:
        result = super().add_request(request, *args, **settings)  # type: ignore[misc]
        if self._tinycb_tape is not None:
            self._tinycb_tape.note().events.append(Arrival(request))
        return result

    def finish_requests(self, request_ids: Any, finished_status: Any, *args: Any, **settings: Any) -> Any:
        if request_ids is not None and not isinstance(request_ids, str):
            request_ids = list(request_ids)
        counts = _count_tokens(self, request_ids) if self._tinycb_tape is not None else {}
        result = super().finish_requests(request_ids, finished_status, *args, **settings)  # type: ignore[misc]
        tape = self._tinycb_tape
        if tape is not None:
            try:
                for request in result:
                    name = request.request_id
                    tape.note().events.append(Abort(name, *counts[name], finished_status.name))
            except Exception as error:
                _stop(self, error)
        return result

    def _preempt_request(self, request: Any, *args: Any, **settings: Any) -> Any:
        if self._tinycb_tape is not None:
            try:
                self._tinycb_tape.note().preemptions.append(_describe_preemption(self, request))
            except Exception as error:
                _stop(self, error)
        return super()._preempt_request(request, *args, **settings)  # type: ignore[misc]

    def _get_local_prefix_cache_hit(self, request: Any, *args: Any, **settings: Any) -> Any:
        found = super()._get_local_prefix_cache_hit(request, *args, **settings)  # type: ignore[misc]
        if self._tinycb_tape is not None:
            try:
                self._tinycb_tape.note().last_hit = request, found[0]
            except Exception as error:
                _stop(self, error)
        return found

    def shutdown(self) -> None:
        tape, self._tinycb_tape = self._tinycb_tape, None
        if tape is not None:
            tape.close()
        super().shutdown()  # type: ignore[misc]


def _count_tokens(scheduler: Recorder, names: Any) -> dict[str, tuple[int, int]]:
    """Output and computed tokens of those that are about to be finished. names: None for all."""
    try:
        if names is None or isinstance(names, str):
            names = list(scheduler.requests) if names is None else [names]
        known = [scheduler.requests[name] for name in names if name in scheduler.requests]
        return {r.request_id: (r.num_output_tokens, r.num_computed_tokens) for r in known}
    except Exception as error:
        _stop(scheduler, error)
        return {}


def _look_at_the_queue(scheduler: Recorder, notes: Notes) -> None:
    notes.num_waiting = len(scheduler.waiting) + len(scheduler.kv_holding_waiting)
    head = (scheduler.kv_holding_waiting or scheduler.waiting).peek_request()
    notes.head, notes.head_is_blocked = head, head in scheduler.deferred_waiting


def _describe_preemption(scheduler: Recorder, victim: Any) -> Preemption:
    """For whom: the first running request that lacks blocks for what the budget lets it run."""
    assert scheduler._tinycb_tape is not None
    tables, free = scheduler.kv_cache_manager, scheduler._tinycb_tape.free.num_free_blocks
    computed, size = victim.num_computed_tokens, scheduler.block_size
    budget = scheduler.max_num_scheduled_tokens
    for request in [*scheduler.running, victim]:
        wants = request.num_tokens_with_spec + request.num_output_placeholders
        num_tokens = min(wants - request.num_computed_tokens, budget)
        blocks = len(tables.get_block_ids(request.request_id)[0])
        needs = -(-(request.num_computed_tokens + num_tokens) // size) - blocks
        if needs > free:
            return Preemption(victim.request_id, computed, request.request_id, needs, free)
        budget -= num_tokens
    return Preemption(victim.request_id, computed, None, 0, free)


def _stop(scheduler: Recorder, error: Exception) -> None:
    tape, scheduler._tinycb_tape = scheduler._tinycb_tape, None
    give_up(f"{type(error).__name__}: {error}")
    if tape is not None:
        tape.close()
