"""A workload: who arrives when, with how long a prompt, and how much each is to be answered.

Public traces publish lengths and not texts, so a prompt is a list of pieces, each with a key and a length:
pieces of the same key are the same tokens, others share nothing. That is all a prefix cache can tell. Tokens
are made when they are asked for, from the key and the size of the vocabulary, so 20,000 long prompts take no
memory before they arrive.

Next: `readers.py` for public files, `synthetic.py` for made ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Arrival", "Piece", "Workload", "WorkloadError"]


class WorkloadError(ValueError):
    """A workload that cannot be read or used. One line that names the file and what would be right."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`length` tokens that equal those of every other piece with this key, up to the shorter one's length."""

    key: str
    length: int

    def tokens(self, vocab_size: int) -> list[int]:
        return random.Random(self.key).choices(range(vocab_size), k=self.length)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come. time: seconds after the workload's beginning. output_tokens: how many it gets.

    prompt: pieces, or the token ids themselves where the workload has them. where: its place in its file.
    """

    request_id: str
    time: float
    prompt: Sequence[Piece] | Sequence[int]
    output_tokens: int
    where: str = ""

    @property
    def prompt_tokens(self) -> int:
        return sum(part.length if isinstance(part, Piece) else 1 for part in self.prompt)

    def token_ids(self, vocab_size: int) -> list[int]:
        """The prompt. The same for the same vocabulary, whenever it is asked for."""
        ids: list[int] = []
        for part in self.prompt:
            ids.extend(part.tokens(vocab_size) if isinstance(part, Piece) else (part,))
        return ids


@dataclass(frozen=True, slots=True)
class Workload:
    """Arrivals in order of time. problems: a line for each row that could not be used; they are not in it."""

    name: str
    arrivals: Sequence[Arrival]
    problems: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.arrivals[-1].time - self.arrivals[0].time if self.arrivals else 0.0

    @property
    def rate(self) -> float | None:
        """Requests a second, or None if all arrive at once."""
        return (len(self.arrivals) - 1) / self.span if self.span > 0 else None

    def limit(self, count: int) -> Workload:
        """The first `count` requests."""
        return replace(self, arrivals=self.arrivals[:count])

    def scale(self, factor: float) -> Workload:
        """Lengths times `factor`, at least one token each; arrivals stay. Shared prefixes stay shared."""

        def pieces(arrival: Arrival) -> Sequence[Piece] | Sequence[int]:
            if all(isinstance(part, Piece) for part in arrival.prompt):
                return [Piece(p.key, _scaled(p.length, factor)) for p in arrival.prompt]  # type: ignore[union-attr]
            return arrival.prompt[: _scaled(len(arrival.prompt), factor)]

        return self._map(
            lambda a: replace(a, prompt=pieces(a), output_tokens=_scaled(a.output_tokens, factor))
        )

    def at_rate(self, rate: float) -> Workload:
        """The same arrivals at `rate` requests a second on average: the gaps shrink or grow in proportion.

        Raises WorkloadError if all arrive at once, because there are no gaps to stretch.
        """
        if self.rate is None:
            raise WorkloadError(f"{self.name}: all requests arrive at once, so there is no rate to change")
        factor = self.rate / rate
        return self._map(lambda a: replace(a, time=a.time * factor))

    def _map(self, change: Callable[[Arrival], Arrival]) -> Workload:
        return replace(self, arrivals=[change(arrival) for arrival in self.arrivals])


def _scaled(length: int, factor: float) -> int:
    return max(1, round(length * factor))
