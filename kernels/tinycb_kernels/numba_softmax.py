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

from .numba_exp import exp, exp_lanes
from .numba_tile import NARROW
from .numba_vectors import LANES

Array = NDArray[np.float32]

TILE = 48  # keys between two corrections of the running values; K and V of a tile fit in a core's cache
MINUS_INFINITY = np.float32(-np.inf)


@njit(error_model="numpy")
def larger(a: np.float32, b: np.float32) -> np.float32:
    """The larger of a and b; a where b is NaN, which then makes its own weight NaN."""
    return b if b > a else a


def weigh_in(lanes: int) -> Any:
    """`weigh` for tiles of `lanes` rows, LANES or NARROW of them."""
    together = LANES // lanes  # keys that lie in a vector

    def weigh(
        scores: Array,
        count: int,
        seen: NDArray[np.int64],
        largest: Array,
        total: Array,
        shrink: Array,
        bases: Array,
    ) -> None:
        """Scores become weights, exp(score - largest); 0 for a key that the row may not see.

        scores (TILE, lanes), flat, of which `count` keys · seen (lanes,) how many of them each row may see,
        the first row the fewest · largest, total (lanes,) brought up to date · shrink (lanes,) what the old
        sums are to be multiplied by · bases (LANES,) scratch.
        """
        table, whole = scores[: TILE * lanes].reshape(TILE, lanes), (count + 7) // 8 * 8
        for m in range(lanes):
            shrink[m] = largest[m]
        for j in range(max(0, seen[0]), whole):
            for m in range(lanes):
                table[j, m] = table[j, m] if j < seen[m] else MINUS_INFINITY
        for j in range(0, whole, 8):  # eight keys a pass, so that the running values are touched less often
            for m in range(lanes):
                a, b = larger(table[j, m], table[j + 1, m]), larger(table[j + 2, m], table[j + 3, m])
                c, d = larger(table[j + 4, m], table[j + 5, m]), larger(table[j + 6, m], table[j + 7, m])
                largest[m] = larger(largest[m], larger(larger(a, b), larger(c, d)))
        for m in range(lanes):  # a row that has seen nothing yet has no largest score
            base = largest[m] if largest[m] > MINUS_INFINITY else np.float32(0)
            for key in range(together):
                bases[key * lanes + m] = base
            shrink[m] = exp(shrink[m] - base)
            total[m] *= shrink[m]
        for at in range(0, whole * lanes, LANES):
            exp_lanes(scores, at, bases)
        for j in range(0, whole, 8):
            for m in range(lanes):
                left = (table[j, m] + table[j + 1, m]) + (table[j + 2, m] + table[j + 3, m])
                right = (table[j + 4, m] + table[j + 5, m]) + (table[j + 6, m] + table[j + 7, m])
                total[m] += left + right

    # Compiled code goes by this name. Two functions of one name and of the same types can be taken for each
    # other where Numba brings together what two processes have compiled.
    weigh.__qualname__ = f"weigh_{lanes}"
    return njit(error_model="numpy")(weigh)


weigh_wide, weigh_narrow = weigh_in(LANES), weigh_in(NARROW)
