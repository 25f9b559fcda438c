"""Letters, colours and glyphs: one sign for one meaning, in every picture.

A request is its letter wherever it appears, and a colour goes with the letter, so colour never says anything
alone. Next: `run_state.py`.
"""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass

__all__ = ["ASCII", "BLOCKS", "Glyphs", "colour", "letter", "printable"]

_ONE_LETTER = string.ascii_uppercase + string.ascii_lowercase
_COLOURS = (
    "#56b4e9", "#e69f00", "#2fbf8f", "#cc79a7", "#d9c832", "#e8743b",
    "#8c9eff", "#7cb342", "#f06292", "#4dd0c4", "#bc8f6f", "#a5a5a5",
)  # fmt: skip


def letter(index: int) -> str:
    """A … Z, a … z, then AA, AB, … ZZ, AAA, …

    >>> [letter(i) for i in (0, 25, 26, 51, 52, 53, 78, 52 + 26 * 26)]
    ['A', 'Z', 'a', 'z', 'AA', 'AB', 'BA', 'AAA']
    """
    if index < len(_ONE_LETTER):
        return _ONE_LETTER[index]
    index, length = index - len(_ONE_LETTER), 2
    while index >= 26**length:
        index, length = index - 26**length, length + 1
    digits = []
    for _ in range(length):
        index, digit = divmod(index, 26)
        digits.append(string.ascii_uppercase[digit])
    return "".join(reversed(digits))


def colour(index: int) -> str:
    """The colour of the request with this index; there are twelve, used in turn."""
    return _COLOURS[index % len(_COLOURS)]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What a request did in a step, in one cell; and the parts of a bar."""

    prefill: str
    decode: str
    padding: str  # computed and dropped: a padded token, or the slot of a finished request
    waits: str
    preempted: str
    free: str
    dot: str  # between words
    cut: str  # where something was left out

    @property
    def legend(self) -> str:
        return (
            f"{self.prefill} prefill   {self.decode} decode   {self.padding} padding or idle slot   "
            f"{self.waits} waits   {self.preempted} preempted"
        )


BLOCKS = Glyphs("█", "▄", "·", "┄", "×", "░", "·", "…")
ASCII = Glyphs("#", "=", ".", "-", "x", ".", "-", "~")


def printable(text: str, *, one_line: bool = False) -> str:
    """Text that cannot move a terminal's cursor or change its colours; tabs and newlines may stay.

    >>> printable("a\\x1b[31mb\\tc", one_line=True)
    'a�[31mb c'
    """
    if one_line:
        text = " ".join(text.split())
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in text
    )
