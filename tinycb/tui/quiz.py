"""A quiz about a run: the run up to the step that is asked about, and what has been answered.

What comes after that step is not there: a `Curtain` is a source that ends where the question begins, so no
panel and no key can show more than is known. No terminal here. Next: `quiz_panel.py`, `quiz_screen.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tinycb.tracing.pool_state import PoolState
from tinycb.tracing.quiz import Question
from tinycb.tracing.records import StepRecord
from tinycb.tui.source import Source

__all__ = ["LETTERS", "Curtain", "Quiz"]

LETTERS = "abcd"


class Curtain:
    """The first steps of a source, as if there were no others. `open_to` lets more of them be seen."""

    def __init__(self, source: Source, length: int) -> None:
        self._source = source
        self._length = length
        self.block_size, self.num_blocks = source.block_size, source.num_blocks

    def open_to(self, length: int | None) -> None:
        """None: all there are."""
        self._length = len(self._source) if length is None else length

    @property
    def header(self) -> Mapping[str, Any]:
        return self._source.header

    @property
    def truncated(self) -> bool:
        return False

    @property
    def steps(self) -> range:
        first = self._source.steps.start
        return range(first, first + self._length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> StepRecord:
        return self._source[self._checked(index)]

    def __iter__(self) -> Iterator[StepRecord]:
        for index in count():
            if index >= self._length:
                return
            yield self._source[index]

    def state(self, index: int) -> PoolState:
        return self._source.state(self._checked(index))

    def refresh(self) -> int:
        return 0

    def _checked(self, index: int) -> int:
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"step {index} of {self._length}")
        return position


class Quiz:
    """questions: in order. chosen: what was answered to each so far, None where the answer was shown.

    at: the question that is asked, or len(questions) when all are done.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = list(questions)
        self.chosen: list[int | None] = []
        self.at = 0

    @property
    def question(self) -> Question | None:
        return self.questions[self.at] if self.at < len(self.questions) else None

    @property
    def is_answered(self) -> bool:
        """Whether the step of the present question may be seen."""
        return len(self.chosen) > self.at

    @property
    def num_right(self) -> int:
        pairs = zip(self.questions, self.chosen, strict=False)
        return sum(question.answer == choice for question, choice in pairs)

    @property
    def missed(self) -> list[Question]:
        """Those that were not answered rightly, of those that are done."""
        pairs = zip(self.questions, self.chosen, strict=False)
        return [question for question, choice in pairs if question.answer != choice]

    @property
    def score(self) -> str:
        return f"{self.num_right} of {len(self.chosen)} right"

    def answer(self, choice: int | None) -> None:
        """The number of a choice; None shows the answer. The first answer counts."""
        if self.question is not None and not self.is_answered:
            self.chosen.append(choice)

    def advance(self) -> None:
        """On to the next question, once this one is answered."""
        if self.question is not None and self.is_answered:
            self.at += 1

    def choice_of(self, text: str) -> int | None:
        """Which choice a typed text means: its names in any order, its number, or else its letter.

        Names come first, because requests may be called like letters: a letter needs no typing.
        """
        question = self.question
        if question is None:
            return None
        typed = text.strip()
        for same in (str, str.casefold):
            words = _words(same(typed))
            found = [
                number
                for number, (choice, value) in enumerate(zip(question.choices, question.values, strict=True))
                if words and (words == _words(same(choice)) or typed == str(value))
            ]
            if len(found) == 1:
                return found[0]
            if typed in tuple(LETTERS[: len(question.choices)]):
                return LETTERS.index(typed)
        return None


def _words(text: str) -> list[str]:
    return sorted(re.findall(r"[^\s,]+", text))
