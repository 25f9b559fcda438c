"""The online softmax as the Triton kernels share it: one tile of scores at a time, in base 2.

The online softmax (Milakov and Gimelshein, 2018) keeps, for each row, the largest score so far, the sum of
exp(score - largest), and the same sum weighted with values. numba_attention.py says it in plain loops.

A GPU has an instruction for 2**x and none for e**x, so e**((score - largest) * scale) is computed as
2**((score - largest) * factor), with factor = scale * log2(e). The difference is taken before it is scaled:
scores near 60,000 that were scaled first would lose the digits in which they differ.

It loads nothing: where queries, keys and values lie is what tells the kernels apart. Read next:
triton_tile.py.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import math

import triton
import triton.language as tl

SMALLEST = 2.0**-126  # of the normal float32 numbers


def exp2_factor(scale: float) -> float:
    """What a kernel multiplies differences of scores by. A negative scale's sign goes into the queries.

    Not 0, even if the scale is: a hidden score is -inf, and -inf * 0 is NaN.
    """
    return max(abs(scale) * math.log2(math.e), SMALLEST)


@triton.jit
def softmax_start(ROWS: tl.constexpr, DIMS: tl.constexpr):
    """largest (ROWS,), total (ROWS,) and weighted values (ROWS, DIMS) of rows that have seen no key."""
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, DIMS], tl.float32)
    return largest, total, weighted


@triton.jit
def softmax_step(scores, values, factor, largest, total, weighted):
    """The three running values after one more tile of keys.

    scores (ROWS, KEYS), -inf where a key is hidden · values (KEYS, DIMS)
    """
    new_largest = tl.maximum(largest, tl.max(scores, axis=1))  # (ROWS,)
    base = exponent_base(new_largest)
    weights = tl.exp2((scores - base[:, None]) * factor)  # (ROWS, KEYS)
    shrink = tl.exp2((largest - base) * factor)  # (ROWS,)
    total = total * shrink + tl.sum(weights, axis=1)
    weighted = weighted * shrink[:, None]
    weighted = tl.dot(weights.to(values.dtype), values, weighted, input_precision="ieee")  # (ROWS, DIMS)
    return new_largest, total, weighted


@triton.jit
def exponent_base(largest):
    """The largest score, or 0 where there is none.

    While a row has seen no key its largest score is -inf, and -inf - -inf is NaN. The 0 is for the exponent
    only: kept as the largest score, it would swallow later scores of -200.
    """
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def softmax_end(total, weighted):
    """(ROWS, DIMS): the softmax-weighted mean of the values, and 0 for a row that saw no key."""
    return weighted / tl.where(total == 0.0, 1.0, total)[:, None]
