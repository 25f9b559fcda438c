"""Means and percentiles of many numbers in bounded memory.

Knows nothing of requests. Up to `LIMIT` values every figure is exact; beyond, the mean stays exact and the
percentiles are those of a uniform sample of that size (Vitter's algorithm R).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LIMIT", "Samples", "Summary"]

LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Summary:
    """count values: their mean and percentiles, interpolated as numpy does. None where there is no value."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class Samples:
    """Collects numbers and sums them up."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.count = 0
        self._sum = 0.0
        self._values: list[float] = []
        self._random = np.random.default_rng(0)  # seeded: the same run gives the same figures

    def add(self, values: Sequence[float]) -> None:
        room = self.limit - len(self._values)
        self._values.extend(values[:room])
        rest = values[max(room, 0) :]
        if rest:
            # The n-th value of all takes the place of a kept one with probability limit / n.
            seen = self.count + len(values) - len(rest)
            places = self._random.integers(0, np.arange(seen + 1, seen + len(rest) + 1))
            for place, value in zip(places.tolist(), rest, strict=True):
                if place < self.limit:
                    self._values[place] = value
        self.count += len(values)
        self._sum += sum(values)

    def summary(self) -> Summary:
        if not self.count:
            return Summary()
        percentiles = (float(p) for p in np.percentile(self._values, (50, 90, 95, 99)))
        return Summary(self.count, self._sum / self.count, *percentiles)
