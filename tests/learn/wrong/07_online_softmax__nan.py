"""a tile without a key to see spoiled the answer"""

import math


def take_in(largest, total, weighted, scores, values):
    """Forgets that -inf - -inf is no number."""
    new = max(largest, *scores)
    shrink = math.exp(largest - new)
    weights = [math.exp(score - new) for score in scores]
    sums = [sum(w * value[d] for w, value in zip(weights, values, strict=True)) for d in range(len(weighted))]
    return (
        new,
        total * shrink + sum(weights),
        [old * shrink + more for old, more in zip(weighted, sums, strict=True)],
    )
