"""Conditions over a step, as they are typed after `b`: `free<2`, `preempted`, `A.decode and waiting>3`.

    condition   any ("or" any)*           any    each ("and" each)*           each   "not"? term
    term        a number or a request's number, compared:   free <= 2    B.output == 4    step >= 100
                something that happened:                    preempted    B.finished
                ( condition )

Nothing is evaluated but these words, and what is wrong is said with the place where it is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from tinycb.tui.history import COUNTS, EVENTS, History, Life
from tinycb.tui.source import Source

__all__ = ["Condition", "ConditionError", "parse"]

_Test = Callable[["Moment"], bool]
_Number = Callable[["Moment"], "int | None"]
_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_WORDS = re.compile(r"\s*(<=|>=|==|!=|[<>=()]|[^\s<>=!()]+|!)")
_STATES = {"waits": "ws", "prefill": "pP", "decode": "d", "preempted": "x", "idle": "h", "runs": "pPd"}
_HAPPENED = {
    "preempted": "preemption", "finished": "finish", "admitted": "admission", "refused": "refusal",
    "hit": "prefix hit", "aborted": "abort", "error": "error",
}  # fmt: skip
_LISTS = ("arrived", "admitted", "finished", "returned", "aborted", "refused", "sampled")
_OF_A_REQUEST = ("computed", "output", "blocks")


class ConditionError(ValueError):
    """Its text is one line, for the screen."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step that a condition is asked about."""

    source: Source
    history: History
    index: int


@dataclass(frozen=True, slots=True)
class Condition:
    """text: as it was typed."""

    text: str
    test: _Test

    def holds(self, source: Source, history: History, index: int) -> bool:
        """Whether it holds in a step that the history has reached."""
        return self.test(Moment(source, history, index))


def parse(text: str) -> Condition:
    """Raises ConditionError, saying what is wrong and what there is."""
    parser = _Parser(text)
    test = parser.any()
    if parser.word is not None:
        raise ConditionError(f"{parser.word!r} is one word too many; join conditions with and, or")
    return Condition(" ".join(text.split()), test)


class _Parser:
    def __init__(self, text: str) -> None:
        self._words: list[str] = _WORDS.findall(text)
        self._at = 0

    @property
    def word(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def take(self) -> str | None:
        word = self.word
        self._at += 1
        return word

    def any(self) -> _Test:
        tests = [self.each()]
        while self.word == "or":
            self.take()
            tests.append(self.each())
        return tests[0] if len(tests) == 1 else lambda moment: any(test(moment) for test in tests)

    def each(self) -> _Test:
        tests = [self.term()]
        while self.word == "and":
            self.take()
            tests.append(self.term())
        return tests[0] if len(tests) == 1 else lambda moment: all(test(moment) for test in tests)

    def term(self) -> _Test:
        word = self.take()
        if word is None:
            raise ConditionError(
                "a condition is missing; for example free<2, preempted, A.decode, refcount>1"
            )
        if word == "not":
            inner = self.term()
            return lambda moment: not inner(moment)
        if word == "(":
            inner = self.any()
            if self.take() != ")":
                raise ConditionError("a ( is not closed")
            return inner
        number = _number(word)
        if self.word in _OPERATORS:
            if number is None:
                raise ConditionError(f"{word!r} is no number; there are {_numbers()}")
            return self.comparison(word, number)
        if number is not None:
            raise ConditionError(f"{word!r} is a number: compare it, as in {word}>1")
        return _event(word)

    def comparison(self, word: str, number: _Number) -> _Test:
        symbol = self.take() or ""
        compare, given = _OPERATORS[symbol], self.take()
        if given is None or not re.fullmatch(r"-?\d+", given):
            raise ConditionError(f"after {word}{symbol} comes an integer, not {given or 'nothing'!r}")
        limit = int(given)

        def test(moment: Moment) -> bool:
            value = number(moment)
            return value is not None and compare(value, limit)

        return test


def _numbers() -> str:
    return ", ".join((*COUNTS, "used", "refcount", "step", "B.computed, B.output, B.blocks"))


def _number(word: str) -> _Number | None:
    """The number that a word names."""
    if word in COUNTS:
        return lambda moment: moment.history.counts[word][moment.index]
    if word == "used":
        return lambda moment: moment.source.num_blocks - moment.history.counts["free"][moment.index]
    if word == "step":
        return lambda moment: moment.source.steps[moment.index]
    if word == "refcount":
        return _refcount
    name, dot, what = word.rpartition(".")
    if not dot or what not in _OF_A_REQUEST:
        return None

    def of_a_request(moment: Moment) -> int | None:
        life = _life(moment, name)
        if life is None or not life.code_at(moment.index):
            return None
        if what == "output":
            return life.sampled(moment.index)[0]
        state = moment.source.state(moment.index).requests.get(life.request_id)
        if state is None:
            return None
        return state.num_computed_tokens if what == "computed" else len(state.block_table)

    return of_a_request


def _refcount(moment: Moment) -> int:
    counts: dict[int, int] = {}
    for request in moment.source.state(moment.index).requests.values():
        for block_id in request.block_table:
            counts[block_id] = counts.get(block_id, 0) + 1
    return max(counts.values(), default=0)


def _event(word: str) -> _Test:
    if word in _HAPPENED:
        steps = _HAPPENED[word]
        assert steps in EVENTS
        return lambda moment: _among(moment, steps)
    name, dot, what = word.rpartition(".")
    if not dot:
        raise ConditionError(
            f"{word!r} is not known; there are {', '.join(_HAPPENED)}, A.decode and the like, "
            f"and the numbers {_numbers()}"
        )
    if what in _STATES:
        codes = _STATES[what]

        def test(moment: Moment) -> bool:
            life = _life(moment, name)
            return life is not None and life.code_at(moment.index) in tuple(codes)

        return test
    if what in _LISTS:
        return lambda moment: any(
            name in (request_id, _letter(moment, request_id))
            for request_id in getattr(moment.source[moment.index], what)
        )
    known = ", ".join((*_STATES, *_LISTS, *_OF_A_REQUEST))
    raise ConditionError(f"{what!r} is not known of a request; there are {known}")


def _among(moment: Moment, kind: str) -> bool:
    return moment.history.next_event(kind, moment.index - 1, 1) == moment.index


def _letter(moment: Moment, request_id: str) -> str:
    from tinycb.view.signs import letter

    return letter(moment.history.sign(request_id))


def _life(moment: Moment, name: str) -> Life | None:
    """By id, or by letter."""
    life = moment.history.life(name, moment.index)
    if life is not None:
        return life
    for entry in moment.history.lives:
        if isinstance(entry, Life) and _letter(moment, entry.request_id) == name:
            return moment.history.life(entry.request_id, moment.index)
    return None
