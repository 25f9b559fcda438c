"""A run as a quiz: before chosen steps, what happens next? Made from a trace alone, of whatever engine.

`quiz` reads the records once, notes what each kind of question could be asked of which step, and takes from
every kind in turn, so that a short quiz has something of everything. One question a step; none of the first
step, before which nothing is known.

The same trace gives the same quiz. Next: `tinycb.tui.quiz`, which asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from tinycb.tracing.pool_state import PoolState
from tinycb.tracing.quiz_kinds import KINDS
from tinycb.tracing.quiz_moment import Moment
from tinycb.tracing.quiz_question import Question
from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["QUESTIONS", "Question", "Recorded", "questions_about", "quiz"]

QUESTIONS = 12
LOOKED_THROUGH = 4000  # steps; a quiz is over long before
PROMPTS = 32  # of the latest arrivals, for prefixes
_OF_THE_QUEUE = ("stopped", "admitted")  # asked when its head's case changes, not while it waits on


class Recorded(Protocol):
    """`TraceReader` is one."""

    @property
    def header(self) -> Mapping[str, Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> StepRecord: ...

    def __iter__(self) -> Iterator[StepRecord]: ...

    def state(self, index: int) -> PoolState: ...


def quiz(source: Recorded, limit: int = QUESTIONS) -> list[Question]:
    """At most `limit` questions, in the order of their steps; none if there is nothing to ask."""
    asking = _Asking(source)
    places: dict[str, list[int]] = {kind: [] for kind in KINDS}
    waited: set[tuple[str, str]] = set()
    for index, record in zip(range(LOOKED_THROUGH), source, strict=False):
        asking.note(index, record)
        waits = {(d.request_id, str(d.reason)) for d in record.decisions if d.action == "wait"}
        is_news, waited = bool(record.admitted or waits - waited), waits
        for name, kind in KINDS.items() if index and _is_plain(record) else ():
            if kind.happens(record) and (is_news or name not in _OF_THE_QUEUE):
                places[name].append(index)
    turns = {name: deque(_spread(indices)) for name, indices in places.items() if indices}
    chosen: dict[int, Question] = {}
    while turns and len(chosen) < limit:
        for name in list(turns):
            question = None
            while turns[name] and question is None:
                index = turns[name].popleft()
                question = None if index in chosen else asking.ask(name, index)
            if question is not None and len(chosen) < limit:
                chosen[question.index] = question
            if not turns[name]:
                del turns[name]
    return [chosen[index] for index in sorted(chosen)]


def questions_about(source: Recorded, index: int) -> list[Question]:
    """Every question that step `index` of the source gives rise to."""
    record = source[index]
    if index == 0 or not _is_plain(record):
        return []
    asking = _Asking(source)
    for at, earlier in zip(range(index + 1), source, strict=False):
        asking.note(at, earlier)
    made = (asking.ask(name, index) for name, kind in KINDS.items() if kind.happens(record))
    return [question for question in made if question is not None]


def _is_plain(record: StepRecord) -> bool:
    """Whether the step ran, and ran through; and nobody came again under the id of one that was given up."""
    failed = record.error is not None or record.errors
    return bool(record.scheduled) and not failed and not set(record.aborted) & set(record.arrived)


def _spread(indices: Sequence[int]) -> Iterator[int]:
    """The first, the last, the middle, and so on: wherever one stops, they lie far apart."""
    seen: set[int] = set()
    parts = 1
    while len(seen) < len(indices):
        for part in range(parts + 1):
            at = part * (len(indices) - 1) // parts
            if at not in seen:
                seen.add(at)
                yield indices[at]
        parts *= 2


class _Asking:
    """Makes the questions of one source, with what the records up to each step said of those that came."""

    def __init__(self, source: Recorded) -> None:
        self._source = source
        self._arrivals: list[tuple[int, NewRequest]] = []

    def note(self, index: int, record: StepRecord) -> None:
        self._arrivals += [(index, new) for new in record.new_requests]

    def ask(self, kind: str, index: int) -> Question | None:
        came = [new for at, new in self._arrivals if at <= index]
        limits = {new.request_id: int(new.sampling_params.get("max_tokens", 0)) for new in came}
        moment = Moment(
            index=index,
            record=self._source[index],
            before=self._source.state(index - 1),
            config=self._source.header.get("config", {}),
            limits={name: limit for name, limit in limits.items() if limit},
            prompts=[(new.request_id, new.prompt_token_ids) for new in came[-PROMPTS:]],
        )
        return KINDS[kind].make(moment)
