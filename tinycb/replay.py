"""Runs a trace again and names the first step that differs, so that any trace is a regression test.

The recorded run gives what came from outside: arrivals, aborts and refusals between the same steps, the
tokens that were sampled, and the forwards that failed. All else is decided anew by the engine of today, and
compared: who runs, in which order, on which blocks, and why. No model is needed. Times are not compared; a
token's value and an error's text are taken over.

Next: `engine.py`, which is what is under test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tinycb.engine import Engine
from tinycb.executors import ExecutorOutput, ScheduledStep
from tinycb.request import Request, SamplingParams
from tinycb.scheduling import Reason, Scheduler
from tinycb.tracing import NewRequest, StepRecord, TraceError, TraceReader, config_from_header

__all__ = ["COMPARED", "Difference", "replay"]

# In this order, so that the first difference is the one nearest to its cause. The tables come last: the
# reader builds them out of the other fields.
COMPARED = (
    *("arrived", "refused", "aborted", "preempted", "admitted", "scheduled", "num_computed", "prefix_hits"),
    *("blocks_allocated", "blocks_evicted", "blocks_cached", "running", "num_waiting", "num_free_blocks"),
    *("num_padded", "num_recomputed", "error", "errors", "sampled", "finished", "returned", "blocks_freed"),
    *("decisions", "block_tables"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step that went another way, and the first field in it that tells."""

    step: int
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"step {self.step} differs in {self.field}: "
            f"recorded {self.recorded!r:.200}, replayed {self.replayed!r:.200}"
        )


def replay(path: str | Path, *, scheduler: type[Scheduler] | None = None) -> Difference | None:
    """Run the trace again; None if every step is the same.

    scheduler: runs instead of the recorded policy, to see where the two part ways.

    Raises TraceError if the trace cannot be read, and ValueError if its configuration is none of today's.
    """
    with TraceReader(path) as reader:
        config = config_from_header(reader.header)
        if scheduler is not None:
            config = replace(config, batching=scheduler)
        executor = _Recorded(reader.header)
        tokenizer = _StopStrings()
        comparison = _Comparison()
        engine = Engine(config, executor, tokenizer, trace=comparison, clock=lambda: 0.0)
        last = len(reader) - 1
        for index, record in enumerate(reader):
            executor.record = tokenizer.record = record
            comparison.expect(record)
            engine.outputs.clear()  # nobody takes them
            _come_and_go(engine, tokenizer, record)
            if index == last and _is_closing(record):
                engine.close()
            else:
                try:
                    engine.step()
                except Exception as error:
                    if not comparison.is_done:  # it came from the scheduler, so no record was made
                        what = f"{type(error).__name__}: {error}"
                        return Difference(record.step, "error", record.error, what)
            if comparison.error is not None:
                raise comparison.error
            if comparison.difference is not None:
                return comparison.difference
    return None


def _come_and_go(engine: Engine, tokenizer: _StopStrings, record: StepRecord) -> None:
    """What happened between the last step and this one, in an order in which it can have happened.

    An id may come, be aborted and come again; it is never in use twice, so an abort of an id that is not in
    use comes after its next arrival.
    """
    arrivals = iter(record.new_requests)

    def arrive(news: Iterator[NewRequest], until: str | None = None) -> None:
        for new in news:
            tokenizer.next_id = new.request_id
            params = SamplingParams(**new.sampling_params)
            request = Request(new.request_id, new.prompt_token_ids, params, new.arrival_time)
            with contextlib.suppress(ValueError):  # then the record has a refusal that was not there
                engine.add_request(request, prompt=new.prompt)
            if new.request_id == until:
                return

    told = [decision for decision in record.decisions if decision.action in ("abort", "refuse")]
    for decision in told:
        name = decision.request_id
        if decision.action == "refuse":
            with contextlib.suppress(ValueError):
                engine.add_request(_Refused(name, str(decision.numbers.get("why", ""))))
        else:
            if not engine.is_unfinished(name):
                arrive(arrivals, until=name)
            engine.abort(name)
    arrive(arrivals)


def _is_closing(record: StepRecord) -> bool:
    """Whether this is what `Engine.close` writes: what came after the last step, and no step.

    A step with nothing left to run looks the same, and then it makes no difference which of the two it was.
    """
    chosen = {decision.action for decision in record.decisions} - {"abort", "refuse"}
    stepped = record.scheduled or record.running or record.error or record.pad or chosen
    return not stepped and bool(record.arrived or record.refused or record.aborted)


class _Refused(Request):
    """A request that is refused for the recorded reason, whatever it was."""

    def __init__(self, request_id: str, why: str) -> None:
        super().__init__(request_id, [0])
        self.why = why

    def check(self) -> None:
        raise ValueError(self.why)


class _Recorded:
    """The executor of the recorded run: the same tokens, the same errors, in the same steps."""

    vocab_size: int | None = None
    max_model_len: int | None = None
    num_blocks: int | None = None

    def __init__(self, header: dict[str, Any]) -> None:
        self.name = str(header.get("model"))
        self.eos_token_ids: Collection[int] = frozenset(header.get("eos_token_ids", ()))
        self.record = StepRecord(step=0)

    def check_request(self, request: Request) -> None:
        """What it refused is refused before it is asked."""

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        record = self.record
        if record.error is not None:
            name, _, text = record.error.partition(": ")
            raise type(name, (Exception,), {})(text)
        tokens = {
            name: record.sampled[name] for r in step.sampling if (name := r.request_id) in record.sampled
        }
        errors = {name: record.errors[name] for name in step.scheduled if name in record.errors}
        for request in step.sampling:  # one that did not sample then: the step differs already
            if request.request_id not in tokens and request.request_id not in errors:
                tokens[request.request_id] = 0
        return ExecutorOutput(tokens, errors=errors)


class _StopStrings:
    """A tokenizer whose only texts are stop strings, each where the recorded run found one."""

    def __init__(self) -> None:
        self.record = StepRecord(step=0)
        self.next_id = ""

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError("a replay has token ids")

    def token_text(self, token_id: int) -> str:
        return ""

    def stream(self) -> _StopStringStream:
        return _StopStringStream(self, self.next_id)


class _StopStringStream:
    def __init__(self, tokenizer: _StopStrings, request_id: str) -> None:
        self.tokenizer = tokenizer
        self.request_id = request_id

    def push(self, token_id: int) -> str:
        for decision in self.tokenizer.record.decisions:
            if decision.reason == Reason.STOP_STRING and decision.request_id == self.request_id:
                return str(decision.numbers["string"])
        return ""

    def flush(self) -> str:
        return ""


class _Comparison:
    """Stands where the trace would be written, and compares each record with the recorded one."""

    def __init__(self) -> None:
        self.recorded = StepRecord(step=0)
        self.difference: Difference | None = None
        self.error: TraceError | None = None  # an engine goes on without its trace; a replay does not
        self.is_done = False

    def expect(self, record: StepRecord) -> None:
        self.recorded, self.is_done = record, False

    def write(self, record: StepRecord) -> None:
        self.is_done = True
        for field in chain(("step",), COMPARED):
            try:
                recorded, replayed = _value(self.recorded, field), _value(record, field)
            except TraceError as error:
                self.error = error
                return
            if recorded != replayed:
                self.difference = Difference(record.step, field, recorded, replayed)
                return

    def close(self) -> None:
        """There is no file."""


def _value(record: StepRecord, field: str) -> Any:
    if field == "block_tables":
        return {name: list(table) for name, table in record.block_tables.items()}
    value = getattr(record, field)
    return list(value.items()) if field == "scheduled" else value
