"""A question with its choices, and how one is put together: the right answer among plausible others.

Next: `quiz_numbers.py` and `quiz_requests.py`, the kinds of question.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tinycb.tracing.quiz_moment import Moment
from tinycb.tracing.records import StepRecord

__all__ = ["Kind", "Names", "Question", "ask", "between", "who"]

MOST_CHOICES = 4
MOST_NAMES = 6  # in a choice, one by one
MOST_REASONS = 5
Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Question:
    """What happens in step `index` of the source, whose number is `step`.

    known: lines that say what is known. choices: texts; values: what each stands for, a set of ids, a count,
    a block or the value of a `Reason`. answer: which one is right. reasons: sentences, for afterwards.
    request_id: whom it is about, if it is about one.
    """

    index: int
    step: int
    kind: str
    text: str
    known: tuple[str, ...]
    choices: tuple[str, ...]
    values: tuple[Any, ...]
    answer: int
    reasons: tuple[str, ...]
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """happens: whether a record may have something of it; it is asked of every step. make: the question."""

    happens: Callable[[StepRecord], Any]
    make: Callable[[Moment], Question | None]


def ask(
    moment: Moment,
    kind: str,
    text: str,
    right: Any,
    wrong: Iterable[Any],
    show: Callable[[Any], str | None],
    *,
    about: Collection[str] = (),
    because: str = "",
) -> Question | None:
    """The question, if it has at least three choices that can be told apart.

    wrong: values, the most telling first; those that equal the right one or come twice are left out. show: a
    value in words, None if it cannot be said. about: whose decisions explain it; none for all. because: what
    no decision says.
    """
    values = [right]
    for value in wrong:
        if value not in values and len(values) < MOST_CHOICES:
            values.append(value)
    if isinstance(right, int):
        values.sort()
    else:
        random.Random(f"{moment.record.step} {kind}").shuffle(values)
    texts = [show(value) for value in values]
    choices = [text for text in texts if text is not None]
    if len(values) < 3 or len(choices) < len(values) or len(set(choices)) < len(values):
        return None
    return Question(
        index=moment.index,
        step=moment.record.step,
        kind=kind,
        text=text,
        known=tuple(moment.known),
        choices=tuple(choices),
        values=tuple(values),
        answer=values.index(right),
        reasons=_reasons(moment.record, about, because),
        request_id=next(iter(about)) if len(about) == 1 else None,
    )


def _reasons(record: StepRecord, about: Collection[str], because: str) -> tuple[str, ...]:
    """The decisions that have to do with it, as sentences."""
    said = [d.sentence for d in record.decisions if not about or d.request_id in about]
    lines = ([because] if because else []) + (said or [d.sentence for d in record.decisions])
    return tuple(lines[:MOST_REASONS]) or ("every request decodes one token, which is the rule",)


def who(moment: Moment) -> Callable[[Names], str | None]:
    """Shows a set of requests; None if it cannot be said in a line."""
    order = [*moment.running, *(waiter.request_id for waiter in moment.queue)]
    order = list(dict.fromkeys([*order, *moment.record.scheduled, *moment.record.admitted]))

    def show(names: Names) -> str | None:
        listed = [name for name in order if name in names]
        if len(listed) <= MOST_NAMES:
            return ", ".join(listed) or "nobody"
        missing = [name for name in moment.running if name not in names]
        more = [name for name in listed if name not in moment.running]
        if len(missing) + len(more) > MOST_NAMES:
            return None
        text = f"all {len(moment.running)} that run"
        text += f" but {', '.join(missing)}" if missing else ""
        return text + (f", and {', '.join(more)}" if more else "")

    return show


def between(low: int, high: int, values: Iterable[int]) -> list[int]:
    """Those that could be, from `low` to `high`."""
    return [value for value in values if low <= value <= high]
