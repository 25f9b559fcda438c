"""the cut into tiles changed the answer"""

import math


def take_in(largest, total, weighted, scores, values):
    """Corrects the total and forgets the weighted values."""
    new = max(largest, *scores)
    weights = [math.exp(score - new) for score in scores]
    sums = [sum(w * value[d] for w, value in zip(weights, values, strict=True)) for d in range(len(weighted))]
    shrink = math.exp(largest - new)
    return new, total * shrink + sum(weights), [a + b for a, b in zip(weighted, sums, strict=True)]
