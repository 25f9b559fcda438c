"""Serves a list of prompts on an engine to the end, or to the first Ctrl-C, and loses nothing on the way.

A bad prompt, a full disk under the trace, a failing step or an interrupt each leave the answers there are,
the trace closed, and a line that says what happened. `run.py` and `compare.py` print what comes back.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from tinycb.commands.errors import one_line
from tinycb.commands.flags import flag_message
from tinycb.commands.prompts import PromptSpec
from tinycb.engine import Engine
from tinycb.request import Request, RequestOutput
from tinycb.tracing.codec import TraceError
from tinycb.tracing.records import StepRecord

__all__ = ["Observer", "Served", "StopSwitch", "Stopwatch", "serve", "token_ids"]


class Stopwatch:
    """`time.monotonic` that stands still while a picture is drawn, so that looking costs no latency."""

    def __init__(self) -> None:
        self._paused = 0.0

    def __call__(self) -> float:
        return time.monotonic() - self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - start


class StopSwitch:
    """Ctrl-C while steps run: the first lets the step end, the second raises KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: Any = None

    def __enter__(self) -> StopSwitch:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, signum: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


class Observer(Protocol):
    """Whoever looks on."""

    def observe(self, record: StepRecord) -> None: ...


@dataclass(slots=True)
class Served:
    """What came of it. outputs: in the order of the prompts; an interrupted one has finish_reason `abort`.

    problems: a line for each prompt that was refused. failure: the forward raised, and this is why.
    """

    outputs: list[RequestOutput] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    interrupted: bool = False
    trace_error: str | None = None
    failure: str | None = None


def serve(
    engine: Engine, specs: Sequence[PromptSpec], observer: Observer | None = None, *, chat: bool = False
) -> Served:
    """Add every prompt, step until all are answered, and close the engine."""
    served = Served()
    with StopSwitch() as switch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the engine's own, of a lost trace: it is told below
        names = _add_all(engine, specs, served, chat)
        try:
            while engine.has_unfinished_requests() and not switch.is_set:
                record = engine.step()
                if observer is not None:
                    observer.observe(record)
        except KeyboardInterrupt:
            switch.is_set = True
        except Exception as error:  # whatever an executor raises: the answers so far are still worth printing
            served.failure = f"step {engine.step_count - 1} failed: {type(error).__name__}: {one_line(error)}"
        if engine.trace_error is not None:  # the engine went on without its trace, and warned
            served.trace_error = one_line(engine.trace_error)
        served.interrupted = switch.is_set
        for name in names:
            engine.abort(name)
        try:
            engine.close()
        except TraceError as error:
            engine.trace_error = error
    if engine.trace_error is not None:
        served.trace_error = one_line(engine.trace_error)
    served.outputs = [engine.outputs.pop(name) for name in names if name in engine.outputs]
    return served


def _add_all(engine: Engine, specs: Sequence[PromptSpec], served: Served, chat: bool) -> list[str]:
    names = []
    for spec in specs:
        try:
            request = Request(spec.request_id, token_ids(engine, spec, chat), spec.params)
            engine.add_request(request, prompt=spec.text)
        except (ValueError, TypeError) as error:
            reason = one_line(flag_message(str(error)))
            served.problems.append(f"{spec.where}: {reason}" if spec.where else reason)
        else:
            names.append(spec.request_id)
    return names


def token_ids(engine: Engine, spec: PromptSpec, chat: bool) -> Sequence[int]:
    """The prompt as the engine takes it. Raises ValueError if it is text and there is no tokenizer."""
    if spec.token_ids is not None:
        return spec.token_ids
    assert spec.text is not None
    tokenizer: Any = engine.tokenizer
    if tokenizer is None:
        raise ValueError("this model has no tokenizer: give prompt_token_ids in a .jsonl file")
    ids: Sequence[int] = tokenizer.chat(spec.text) if chat else tokenizer.encode(spec.text)
    return ids
