"""Lines for Textual that nobody keeps.

A `Strip` remembers how it was divided; undivided, it remembers itself, and then only the garbage collector
lets go of it. A hundred lines a drawing would make it look through everything every few steps, for longer
than a drawing takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.strip import Strip

__all__ = ["forgetful"]


class _Forgetful(Strip):
    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        cuts = list(cuts)
        return [self] if cuts == [self.cell_length] else super().divide(cuts)


def forgetful(strips: Iterable[Strip]) -> list[Strip]:
    """The same lines."""
    return [_Forgetful(strip._segments, strip.cell_length) for strip in strips]
