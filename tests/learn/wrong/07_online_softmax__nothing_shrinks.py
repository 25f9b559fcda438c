"""the cut into tiles changed the answer"""

import math


def take_in(largest, total, weighted, scores, values):
    """The tile is right by itself, but what was there before stays as it was."""
    new = max(largest, *scores)
    weights = [math.exp(score - new) for score in scores]
    sums = [sum(w * value[d] for w, value in zip(weights, values, strict=True)) for d in range(len(weighted))]
    return new, total + sum(weights), [old + more for old, more in zip(weighted, sums, strict=True)]
