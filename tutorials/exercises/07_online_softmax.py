"""Take in one more tile of keys.

Attention of one query is a mean of values, weighted with `exp(score)`. A program sees the keys tile by tile,
and keeps three running values of those it has seen:

- `largest`: the largest score;
- `total`: the sum of `exp(score - largest)`;
- `weighted`: for each dimension, the sum of `exp(score - largest) * value`.

Before the first tile they are `-inf`, `0.0` and zeros; after the last, `weighted / total` is the answer.
Return the three after a tile with these `scores` and `values` (a list of D numbers for each score). A score
of `-inf` means that the query must not see that key; a tile may consist of nothing else. Scores can be in the
thousands, where `exp(score)` is more than a float can hold. Leave the lists that you are given as they are.
"""


def take_in(
    largest: float,
    total: float,
    weighted: list[float],
    scores: list[float],
    values: list[list[float]],
) -> tuple[float, float, list[float]]:
    """The three running values after one more tile."""
    raise NotImplementedError("write the body of take_in")
