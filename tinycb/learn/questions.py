"""Predict, then see: a question before a run, and its answer out of the run.

In a terminal the reader is asked; in a pipe, a notebook or a test the question is printed and nothing waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from tinycb.learn.screen import Screen
from tinycb.view.signs import printable

__all__ = ["Prediction", "ask"]


@dataclass
class Prediction:
    """A question that was asked. guess: what the reader said, or None."""

    question: str
    choices: tuple[str, ...]
    guess: str | None
    _screen: Screen
    answer: str | None = None

    def see(self, answer: object, because: str) -> None:
        """Print the answer, which must come from the run, and why it is so.

        With choices the answer is one of them, word for word; ValueError otherwise.
        """
        text = str(answer)
        if self.choices and text not in self.choices:
            raise ValueError(
                f"the answer {text!r} is none of the choices {', '.join(map(repr, self.choices))}"
            )
        self.answer = text
        shown = Text("Answer: ", style="bold").append(text, style="bold green")
        if self.guess is not None:
            right = _same(self.guess, text)
            shown.append("   as you said" if right else f"   you said {printable(self.guess, one_line=True)}")
        self._screen.show(Group(shown, Text(because)))


def ask(screen: Screen, question: str, choices: Sequence[str]) -> Prediction:
    """Print the question; wait for an answer only where somebody can give one. An empty line passes."""
    options = tuple(choices)
    lines = [Text("Predict: ", style="bold yellow").append(question, style="bold not yellow")]
    lines += [Text(f"  {key}) {choice}") for key, choice in zip("abcdefgh", options, strict=False)]
    screen.show(Group(*lines))
    guess = _read(options) if screen.can_ask else None
    if screen.can_ask:
        print()
    return Prediction(question, options, guess, screen)


def _read(options: tuple[str, ...]) -> str | None:
    hint = f"{'/'.join('abcdefgh'[: len(options)])}, " if options else ""
    while True:
        try:
            said = input(f"your guess ({hint}Enter to see): ").strip()
        except EOFError:
            return None
        if not said:
            return None
        if not options:
            return said
        if len(said) == 1 and said.lower() in "abcdefgh"[: len(options)]:
            return options["abcdefgh".index(said.lower())]
        if said in options:
            return said


def _same(guess: str, answer: str) -> bool:
    """Whether a guess says what the answer says; of numbers, the first one counts, as `1,232 rows`."""
    if guess.casefold() == answer.casefold():
        return True
    try:
        ours, theirs = (float(text.split()[0].replace(",", "")) for text in (guess, answer))
    except (ValueError, IndexError):
        return False
    return ours == theirs
