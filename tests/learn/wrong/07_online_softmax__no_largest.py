"""large scores spoiled the answer"""

import math


def take_in(largest, total, weighted, scores, values):
    """Adds up plain exponentials."""
    weights = [math.exp(score) for score in scores]
    sums = [sum(w * value[d] for w, value in zip(weights, values, strict=True)) for d in range(len(weighted))]
    return (
        max(largest, *scores),
        total + sum(weights),
        [old + more for old, more in zip(weighted, sums, strict=True)],
    )
