"""What the two Triton attention kernels share: finding a tile's request, and one step of the online softmax.

The online softmax (Milakov and Gimelshein, 2018) keeps, for each row, the largest score so far, the sum of
exp(score - largest), and the same sum weighted with values. numba_attention.py says it in plain loops.

It loads no queries, keys or values: where those lie is what tells the kernels apart. Read next:
triton_varlen.py.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def find_request(starts, tile, requests, TILE_QUERIES: tl.constexpr):
    """The request whose queries are in tile number `tile`, by binary search in the (R+1,) offsets.

    Every request's queries are cut into tiles of its own, so that no tile straddles two requests. Its first
    tile has the number starts[r] // TILE_QUERIES + r; that leaves each request at least as many numbers as it
    needs, and the numbers that it does not need hold no queries.

        TILE_QUERIES 4, starts [0, 3, 9, 10]    r=0: tile 0    r=1: tiles 1, 2    r=2: tile 4    (3 is empty)
    """
    low = 0
    high = requests
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // TILE_QUERIES + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def softmax_start(ROWS: tl.constexpr, DIMS: tl.constexpr):
    """largest (ROWS,), total (ROWS,) and weighted values (ROWS, DIMS) of rows that have seen no key."""
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, DIMS], tl.float32)
    return largest, total, weighted


@triton.jit
def softmax_step(queries, keys, values, visible, scale, largest, total, weighted):
    """The three running values after one more tile of keys.

    queries (ROWS, DIMS) · keys (DIMS, KEYS) · values (KEYS, DIMS) · visible (ROWS, KEYS)
    """
    scores = tl.dot(queries, keys, input_precision="ieee") * scale  # (ROWS, KEYS)
    scores = tl.where(visible, scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, axis=1))  # (ROWS,)
    # While a row has seen no key its largest score is -inf, and -inf - -inf is NaN. It counts as 0 in the two
    # lines below and stays -inf in what is returned: kept as 0, it would swallow later scores of -200.
    base = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    weights = tl.exp(scores - base[:, None])  # (ROWS, KEYS)
    shrink = tl.exp(largest - base)  # (ROWS,)
    total = total * shrink + tl.sum(weights, axis=1)
    weighted = weighted * shrink[:, None]
    weighted = tl.dot(weights.to(values.dtype), values, weighted, input_precision="ieee")  # (ROWS, DIMS)
    return new_largest, total, weighted


@triton.jit
def softmax_end(total, weighted):
    """(ROWS, DIMS): the softmax-weighted mean of the values, and 0 for a row that saw no key."""
    return weighted / tl.where(total == 0.0, 1.0, total)[:, None]
