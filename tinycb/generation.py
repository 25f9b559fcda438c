"""Whole prompts in, answers or streams out: what most callers want of an engine.

Each function here only adds requests to an engine and steps it; `Engine.generate`, `Engine.stream` and
`Engine.astream` are these. Other requests of the same engine go on beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, cast

from tinycb.request import FinishReason, Request, RequestOutput, SamplingParams
from tinycb.tracing.records import StepRecord

if TYPE_CHECKING:
    from tinycb.engine import Engine

__all__ = ["Delta", "Patience", "Prompt", "StuckError", "astream", "generate", "stream"]

Prompt = str | Sequence[int]

EMPTY_STEPS = 4  # a static batch may end in one; more in a row, and nobody will ever run


class Delta(str):
    """A piece of streamed text, whole characters only. It is a `str`, with what else the step brought.

    token_ids: sampled since the last delta. finish_reason: set on the last one, None before.
    """

    token_ids: list[int]
    finish_reason: FinishReason | None

    def __new__(cls, text: str, token_ids: list[int], finish_reason: FinishReason | None = None) -> Delta:
        delta = super().__new__(cls, text)
        delta.token_ids = token_ids
        delta.finish_reason = finish_reason
        return delta

    @property
    def text(self) -> str:
        return str(self)


class StuckError(RuntimeError):
    """Requests wait and none of them will ever run."""


class Patience:
    """Ends a run that no longer goes on, where all that can come has come.

    A step may run nobody: a scheduler of one's own may wait for a request's `arrival_time`. But one that
    chooses nobody while everybody is there would be asked for ever.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._empty = 0

    def observe(self, record: StepRecord) -> None:
        """Raise StuckError, naming the scheduler, after too many steps in a row that ran nobody."""
        if record.scheduled or self._engine.expects_arrivals():
            self._empty = 0
            return
        self._empty += 1
        if self._empty > EMPTY_STEPS and self._engine.has_unfinished_requests():
            scheduler = type(self._engine.scheduler)
            raise StuckError(
                f"{record.num_waiting + len(record.running)} requests wait, and no step runs any of them: "
                f"{scheduler.__module__}.{scheduler.__qualname__} chose nobody in {self._empty} steps"
            )


def generate(
    engine: Engine,
    prompts: Prompt | Sequence[Prompt],
    sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> list[RequestOutput]:
    """See `Engine.generate`."""
    many = _as_list(prompts)
    if sampling_params is None or isinstance(sampling_params, SamplingParams):
        params: Sequence[SamplingParams] = [sampling_params or SamplingParams()] * len(many)
    elif isinstance(sampling_params, Sequence):
        params = sampling_params
    else:
        raise ValueError(f"sampling_params must be one, or one a prompt, not {sampling_params!r:.80}")
    if len(params) != len(many):
        raise ValueError(f"sampling_params must be one, or one a prompt: {len(many)}, not {len(params)}")

    requests = []
    for index, (prompt, param) in enumerate(zip(many, params, strict=True)):
        try:
            request = make_request(engine, prompt, param)
            engine.check_request(request)
        except ValueError as error:
            raise ValueError(f"prompts[{index}]: {error}") from None
        requests.append(request)

    names = [request.request_id for request in requests]
    patience = Patience(engine)
    try:
        for prompt, request in zip(many, requests, strict=True):
            engine.add_request(request, prompt=prompt if isinstance(prompt, str) else None)
        while any(engine.is_unfinished(name) for name in names):
            record = engine.step()
            if on_step is not None:
                on_step(record)
            patience.observe(record)
    except BaseException:
        for request in requests:
            engine.discard(request)
        raise
    return [engine.outputs.pop(name) for name in names]


def stream(engine: Engine, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[Delta]:
    """See `Engine.stream`. The prompt is checked and queued now, not at the first `next`."""
    source = _Stream(engine, prompt, sampling_params)
    patience = Patience(engine)

    def deltas() -> Iterator[Delta]:
        try:
            yield Delta("", [])  # taken out below: only a generator that has begun runs its `finally`
            while not source.is_done:
                delta = source.take()
                if delta is not None:
                    yield delta
                else:
                    patience.observe(engine.step())
        finally:
            source.close()

    iterator = deltas()
    next(iterator)
    return iterator


async def astream(
    engine: Engine, prompt: Prompt, sampling_params: SamplingParams | None = None
) -> AsyncIterator[Delta]:
    """See `Engine.astream`."""
    source = _Stream(engine, prompt, sampling_params)
    try:
        while not source.is_done:
            delta = source.take()
            if delta is not None:
                yield delta
            else:
                await asyncio.to_thread(engine.step_unless_past, engine.step_count, source.request)
    finally:
        source.close()


class _Stream:
    """One request, and how much of its output has been passed on."""

    def __init__(self, engine: Engine, prompt: Prompt, sampling_params: SamplingParams | None) -> None:
        self.engine = engine
        self.request = make_request(engine, prompt, sampling_params or SamplingParams())
        engine.add_request(self.request, prompt=prompt if isinstance(prompt, str) else None)
        self.text = engine.output_text(self.request.request_id)
        self.is_done = False
        self._chars = 0
        self._tokens = self.request.num_prompt_tokens

    def take(self) -> Delta | None:
        """What is new, or None if only another step can bring more."""
        self.is_done = self.request.is_finished
        text, tokens = self.text.certain(), self.request.token_ids[self._tokens :]
        piece = text[self._chars :]
        has_text = self.engine.tokenizer is not None
        if not (self.is_done or piece or (tokens and not has_text)):
            return None
        self._chars, self._tokens = len(text), self._tokens + len(tokens)
        return Delta(piece, tokens, self.request.finish_reason if self.is_done else None)

    def close(self) -> None:
        self.engine.discard(self.request)


def make_request(engine: Engine, prompt: Prompt, params: SamplingParams) -> Request:
    """A request under a name of the engine's choice. Raises ValueError for text without a tokenizer."""
    if isinstance(prompt, str):
        if engine.tokenizer is None:
            raise ValueError("a text prompt needs a tokenizer, and this engine has none: give token ids")
        prompt = engine.tokenizer.encode(prompt)
    return Request(engine.new_request_id(), prompt, params)


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One text or one list of token ids is a list of one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if not hasattr(prompts, "__len__") or isinstance(prompts, Mapping | set | frozenset):
        raise ValueError(
            f"prompts must be a text, a list of token ids, or a list of these, not {prompts!r:.80}"
        )
    if len(prompts) > 0 and isinstance(prompts[0], Integral):
        return [cast(Sequence[int], prompts)]
    return list(cast(Sequence[Prompt], prompts))
