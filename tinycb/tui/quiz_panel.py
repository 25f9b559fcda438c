"""The question on the screen: what is known, what is asked, the choices; then the answer and its reason."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from rich.style import Style
from textual import events
from textual.message import Message

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.look import Look
from tinycb.tui.panel_widget import PanelWidget
from tinycb.tui.quiz import LETTERS, Quiz

__all__ = ["QuizDrawing", "QuizPanel", "quiz_lines"]

_INDENT = "   "


@dataclass(frozen=True, slots=True)
class QuizLine:
    """choice: the number of the choice that the line belongs to, if it belongs to one."""

    text: str
    style: Style
    choice: int | None = None


def quiz_lines(quiz: Quiz, width: int, look: Look) -> list[QuizLine]:
    """All that there is to say at this moment, in lines of `width` cells."""
    question = quiz.question
    if question is None:
        return _summary(quiz, width, look)
    lines = []
    if not quiz.is_answered:
        for known in question.known:
            lines += _wrapped(known, width, look.dim, "  ")
    lines += _wrapped(question.text, width, look.bold)
    chosen = quiz.chosen[quiz.at] if quiz.is_answered else None
    for number, choice in enumerate(question.choices):
        mark, style = "  ", look.text
        if quiz.is_answered and number == question.answer:
            mark, style = "✓ ", look.style("good", bold=True)
        elif quiz.is_answered and number == chosen:
            mark, style = "✗ ", look.style("bad", bold=True)
        parts = _wrapped(f"{mark}{LETTERS[number]}  {choice}", width, style, "     ")
        lines += [QuizLine(part.text, style, number) for part in parts]
    if quiz.is_answered:
        verdict = "right" if chosen == question.answer else "no" if chosen is not None else "shown"
        style = look.style({"right": "good", "no": "bad"}.get(verdict, "accent"), bold=True)
        heads = {"right": "Right.", "no": f"No: it is {LETTERS[question.answer]}.", "shown": "The answer."}
        lines.append(QuizLine(f"{heads[verdict]}  {quiz.score}", style))
        for reason in question.reasons:
            lines += _wrapped(f"· {reason}", width, look.text, "  ")
    return lines


def _summary(quiz: Quiz, width: int, look: Look) -> list[QuizLine]:
    lines = [QuizLine(f"That was the quiz: {quiz.score}.", look.style("accent", bold=True))]
    for question in quiz.missed:
        text = f"step {question.step}: {question.text} {question.choices[question.answer]}"
        lines += _wrapped(text, width, look.text, _INDENT)
    lines.append(QuizLine("The whole run is here now, forward and back; q quits.", look.dim))
    return lines


def _wrapped(text: str, width: int, style: Style, indent: str = _INDENT) -> list[QuizLine]:
    parts = textwrap.wrap(clip(text, 2000), max(20, width - 2), subsequent_indent=indent)
    return [QuizLine(part, style) for part in parts or [""]]


class QuizDrawing(Drawing):
    """It is not about the step that is shown, but about the one after it."""

    name = "quiz"
    title = "What happens next?"
    help = (
        "a … d answer; = and the answer typed, then Enter, does so too; x shows it. Space goes on. "
        "So here b sets no condition, d finds no difference, and space does not play; "
        "all other keys look around in what is known, and what comes later is not there yet."
    )

    def __init__(self, quiz: Quiz) -> None:
        super().__init__()
        self.quiz = quiz
        self.lines: list[QuizLine] = []

    def lay_out(self) -> None:
        self.lines = quiz_lines(self.quiz, self.width, self.view.look)
        self.extent = (self.width, len(self.lines))

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        if y + scroll_y < len(self.lines):
            found = self.lines[y + scroll_y]
            line.put(1, found.text, found.style)
        return line

    def choice_at(self, y: int, scroll_y: int) -> int | None:
        at = y + scroll_y
        return self.lines[at].choice if 0 <= at < len(self.lines) else None

    def anchor(self) -> tuple[int, int, int, int] | None:
        """The choices; where not all of it fits, what is known can be scrolled to."""
        rows = [row for row, line in enumerate(self.lines) if line.choice is not None]
        if not rows:
            return None
        first = max(0, rows[0] - 1)
        last = len(self.lines) - 1 if self.quiz.is_answered else rows[-1]
        return 0, first, 1, min(last - first + 1, self.height)

    def note(self) -> str:
        question = self.quiz.question
        if question is None:
            return self.quiz.score
        place = f"question {self.quiz.at + 1} of {len(self.quiz.questions)}"
        return f"{place} · step {question.step}"


class QuizPanel(PanelWidget):
    """A click on a choice answers."""

    drawing: QuizDrawing

    class Chosen(Message):
        def __init__(self, choice: int) -> None:
            super().__init__()
            self.choice = choice

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        choice = None if offset is None else self.drawing.choice_at(offset.y, self.top)
        if choice is not None:
            self.post_message(self.Chosen(choice))
