"""Rows of scores cut into tiles in every possible way; hidden keys; scores that no exponential can hold."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise
from types import ModuleType

from tinycb.learn import expect

HINTS = [
    "Begin with the new largest score: of the old one and those of the tile.",
    "`total` and `weighted` were computed relative to the old largest score. To make them relative to the "
    "new one, multiply both by exp(old - new).",
    "Never take the exponential of a score itself, only of its difference to the new largest: that is at "
    "most zero.",
    "If nothing but hidden keys has been seen so far, the new largest is -inf, and -inf - -inf is NaN. What "
    "should the three values be then?",
]
HIDDEN = -math.inf


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `take_in` is right."""
    draw = random.Random(7)
    rows = [[draw.uniform(-3, 3) for _ in range(6)] for _ in range(20)]
    for scores in rows:
        _one_row(exercise, scores, [len(scores)], "the answer of a single tile is wrong")
    for scores in rows:
        for tiles in _cuts(len(scores)):
            _one_row(exercise, scores, tiles, "the cut into tiles changed the answer")
    for scores in rows:
        seen = draw.randrange(len(scores))
        hiding = [HIDDEN if i != seen and draw.random() < 0.4 else score for i, score in enumerate(scores)]
        _one_row(exercise, hiding, [len(scores)], "a hidden key has a part in the answer")
    for hidden in (1, 2, 3):
        scores = [HIDDEN] * hidden + rows[0][hidden:]
        for tiles in _cuts(len(scores)):
            _one_row(exercise, scores, tiles, "a tile without a key to see spoiled the answer")
            _one_row(exercise, scores[::-1], tiles, "a tile without a key to see spoiled the answer")
    for offset in (3000.0, -3000.0):
        for scores in rows[:5]:
            moved = [score + offset for score in scores]
            for tiles in _cuts(len(scores)):
                _one_row(exercise, moved, tiles, "large scores spoiled the answer")
    for scores in ([0.0, 2000.0, -2000.0], [2000.0, 0.0, 1999.0], [-2000.0, 0.0, 2000.0]):
        for tiles in _cuts(len(scores)):
            _one_row(exercise, scores, tiles, "large scores spoiled the answer")


def _cuts(length: int) -> list[list[int]]:
    """All ways to cut a row into tiles, as lists of their sizes."""
    inner = range(1, length)
    places = [(0, *cut, length) for count in inner for cut in combinations(inner, count)]
    return [[b - a for a, b in pairwise(cut)] for cut in [(0, length), *places]]


def _one_row(exercise: ModuleType, scores: list[float], tiles: list[int], what: str) -> None:
    values = [[math.cos(j), float(j)] for j in range(len(scores))]
    state: tuple[float, float, list[float]] = (-math.inf, 0.0, [0.0, 0.0])
    case: dict[str, object] = {"scores": scores, "tiles": tiles}
    start = 0
    for size in tiles:
        given = (list(state[2]), scores[start : start + size], values[start : start + size])
        copies = (list(given[0]), list(given[1]), [list(value) for value in given[2]])
        try:
            state = exercise.take_in(state[0], state[1], *given)
        except (OverflowError, ZeroDivisionError) as error:
            expect(False, what, **case, raised=str(error))
        expect(given == copies, "the lists that were given were changed", **case)
        is_state = isinstance(state, tuple) and len(state) == 3 and len(state[2]) == 2
        expect(is_state, "the answer is not largest, total and weighted", got=state)
        start += size
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    right = [
        math.fsum(w * value[d] for w, value in zip(weights, values, strict=True)) / math.fsum(weights)
        for d in range(2)
    ]
    got = [part / state[1] if state[1] else math.nan for part in state[2]]
    close = all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(got, right, strict=True))
    expect(close, what, **case, got=got, right=right)
