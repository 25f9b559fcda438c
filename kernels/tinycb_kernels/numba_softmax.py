"""One step of the online softmax, for a tile of keys: scores become weights.

Softmax needs the largest score before it can weigh anything, and attention walks over the keys once. The
online softmax (Milakov and Gimelshein, 2018) keeps three running values for each row, valid for the keys seen
so far, and corrects them when a larger score turns up:

    largest    the largest score
    total      sum of exp(score - largest)
    acc        sum of exp(score - largest) * value, a (D,) vector; the answer is acc / total

Here are the first two, and by how much the third shrinks. Rows lie side by side, keys below each other.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .numba_exp import exp
from .numba_tile import LANES, NARROW

Array = NDArray[np.float32]

TILE = 48  # keys between two corrections of the running values; K and V of a tile fit in a core's cache
MINUS_INFINITY = np.float32(-np.inf)


@njit(error_model="numpy")
def larger(a: np.float32, b: np.float32) -> np.float32:
    """The larger of a and b; a where b is NaN, which then makes its own weight NaN."""
    return b if b > a else a


def weigh_in(lanes: int) -> Any:
    """`weigh` for the first `lanes` of a tile's rows: loops of known length become vectors."""

    @njit(error_model="numpy")
    def weigh(
        scores: Array,
        count: int,
        seen: NDArray[np.int64],
        largest: Array,
        total: Array,
        shrink: Array,
        base: Array,
    ) -> None:
        """Scores become weights, exp(score - largest); 0 for a key that the row may not see.

        scores (TILE, LANES), of which `count` keys · seen (LANES,) how many of them each row may see, the
        first row the fewest · largest, total (LANES,) brought up to date · shrink (LANES,) what the old sums
        are to be multiplied by · base (LANES,) scratch.
        """
        for m in range(lanes):
            shrink[m] = largest[m]
        for j in range(max(0, seen[0]), (count + 3) // 4 * 4):
            for m in range(lanes):
                scores[j, m] = scores[j, m] if j < seen[m] else MINUS_INFINITY
        for j in range(0, count, 4):  # four keys a pass, so that the running values are touched less often
            for m in range(lanes):
                left, right = (
                    larger(scores[j, m], scores[j + 1, m]),
                    larger(scores[j + 2, m], scores[j + 3, m]),
                )
                largest[m] = larger(largest[m], larger(left, right))
        for m in range(lanes):  # a row that has seen nothing yet has no largest score
            base[m] = largest[m] if largest[m] > MINUS_INFINITY else np.float32(0)
            shrink[m] = exp(shrink[m] - base[m])
            total[m] *= shrink[m]
        for j in range(0, count, 4):
            for m in range(lanes):
                a, b = exp(scores[j, m] - base[m]), exp(scores[j + 1, m] - base[m])
                c, d = exp(scores[j + 2, m] - base[m]), exp(scores[j + 3, m] - base[m])
                scores[j, m], scores[j + 1, m], scores[j + 2, m], scores[j + 3, m] = a, b, c, d
                total[m] += (a + b) + (c + d)

    return weigh


weigh_wide, weigh_narrow = weigh_in(LANES), weigh_in(NARROW)
