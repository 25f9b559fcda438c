"""`tinycb tui --quiz`: stops before chosen steps of a recorded run and asks what happens next.

`tinycb show --quiz` prints the same questions, and the answers below them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tinycb.commands.errors import CommandError, one_line

if TYPE_CHECKING:
    from tinycb.tracing import TraceReader
    from tinycb.tracing.quiz import Question
    from tinycb.tui.quiz import Quiz
    from tinycb.tui.quiz_screen import QuizApp

__all__ = ["make_quiz", "printed", "quiz_app", "score_line"]


def make_quiz(reader: TraceReader) -> list[Question]:
    """The questions of a trace. Raises CommandError if there is nothing to ask, or the trace is broken."""
    from tinycb.tracing.quiz import quiz

    try:
        questions = quiz(reader)
    except (KeyError, TypeError, IndexError) as error:
        raise CommandError(f"{reader.path} cannot be asked about: it is broken ({error!r:.80})") from None
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None
    if not questions:
        raise CommandError(f"--quiz: in {reader.path.name} nothing happens that could be asked about")
    return questions


def quiz_app(reader: TraceReader, look: str) -> QuizApp:
    """The screen with the quiz."""
    from tinycb.tui.quiz import Curtain, Quiz
    from tinycb.tui.quiz_screen import QuizApp
    from tinycb.tui.session import Session

    questions = make_quiz(reader)
    curtain = Curtain(reader, questions[0].index)
    return QuizApp(Session(curtain), Quiz(questions), curtain, look)


def score_line(quiz: Quiz) -> str | None:
    """What is left on the terminal; None if nothing was answered."""
    if not quiz.chosen:
        return None
    return f"tinycb tui --quiz: {quiz.score}, of {len(quiz.questions)} questions"


def printed(questions: Sequence[Question], width: int) -> Iterator[str]:
    """All questions as lines of text, then all answers with their reasons."""

    def wrapped(text: str, indent: str) -> Iterator[str]:
        rest = " " * (len(indent) + 2)
        yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=rest)

    for number, question in enumerate(questions, start=1):
        yield f"{number}. step {question.step}"
        for line in question.known:
            yield from wrapped(line, "   ")
        yield from wrapped(question.text, "   ")
        for letter, choice in zip("abcd", question.choices, strict=False):
            yield from wrapped(f"{letter}  {choice}", "     ")
        yield ""
    yield "answers"
    for number, question in enumerate(questions, start=1):
        yield f"{number:>2}. {'abcd'[question.answer]}  {question.choices[question.answer]}"
        for reason in question.reasons:
            yield from wrapped(reason, "      ")
