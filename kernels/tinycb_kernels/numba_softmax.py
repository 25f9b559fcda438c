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

from .numba_exp import exp_lanes
from .numba_fold import TOGETHER, fold_largest, fold_sum
from .numba_tile import NARROW
from .numba_vectors import LANES

Array = NDArray[np.float32]

TILE = 48  # keys between two corrections of the running values; K and V of a tile fit in a core's cache
MINUS_INFINITY = np.float32(-np.inf)


def weigh_in(lanes: int) -> Any:
    """`weigh` for tiles of `lanes` rows, LANES or NARROW of them."""
    take_largest, take_sum = fold_largest(lanes), fold_sum(lanes)

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

        scores (TILE, lanes), flat, of which `count` keys · seen (lanes,) how many of them each row may see ·
        largest, total (lanes,) brought up to date · shrink (LANES,) what the old
        sums are to be multiplied by · bases (LANES,) scratch.
        """
        whole = (count + TOGETHER - 1) // TOGETHER * TOGETHER
        for m in range(lanes):
            shrink[m] = largest[m]
            for j in range(max(0, seen[m]), whole):
                scores[j * lanes + m] = MINUS_INFINITY
        for j in range(0, whole, TOGETHER):
            take_largest(scores, j * lanes, largest)
        for lane in range(LANES):  # a row that has seen nothing yet has no largest score
            score = largest[lane % lanes]
            bases[lane] = score if score > MINUS_INFINITY else np.float32(0)
        exp_lanes(shrink, 0, bases)
        for m in range(lanes):
            total[m] *= shrink[m]
        for at in range(0, whole * lanes, LANES):
            exp_lanes(scores, at, bases)
        for j in range(0, whole, TOGETHER):
            take_sum(scores, j * lanes, total)

    # Compiled code goes by this name. Two functions of one name and of the same types can be taken for each
    # other where Numba brings together what two processes have compiled.
    weigh.__qualname__ = f"weigh_{lanes}"
    return njit(error_model="numpy")(weigh)


weigh_wide, weigh_narrow = weigh_in(LANES), weigh_in(NARROW)
