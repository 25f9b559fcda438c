"""Take in one more tile of keys: a solution."""

import math


def take_in(
    largest: float,
    total: float,
    weighted: list[float],
    scores: list[float],
    values: list[list[float]],
) -> tuple[float, float, list[float]]:
    """The three running values after one more tile."""
    new_largest = max(largest, *scores)
    if new_largest == -math.inf:  # nothing has been seen yet, and -inf - -inf is NaN
        return largest, total, list(weighted)
    shrink = math.exp(largest - new_largest)  # 0 before the first key
    weights = [math.exp(score - new_largest) for score in scores]  # 0 where a key is hidden
    new_total = total * shrink + sum(weights)
    new_weighted = [
        old * shrink + sum(weight * value[d] for weight, value in zip(weights, values, strict=True))
        for d, old in enumerate(weighted)
    ]
    return new_largest, new_total, new_weighted
