"""A linear layer on a CPU, with what comes before and after it, as compiled parallel loops.

    y = W · f(x) + bias + residual           f: nothing, RMSNorm, or silu(left half) · right half

Threads share the outputs if the rows are few, and otherwise the rows. Each prepares f of its rows for itself
and walks over W in panels of LANES outputs: so the rows that it works on are in its own cache, where it wrote
them.

    W (N, K)   ─ pack_weight ─▶   panels (N / LANES, K, LANES)

A panel that is kept smaller than in float32 is widened as it is multiplied, or, where several tiles of rows
are, once for all of them.

A row's result has the same bits alone and among hundreds: f is computed row by row in an order of its own,
and a product is one chain over K (numba_tile.py).

It checks nothing; linear.py does. Read next: numba_attention.py.
"""

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .numba_exp import exp
from .numba_tile import HALF, LANES, QUARTER, ROWS, scratch, tile_product, tile_rows

PARTS_VERSION = "82661104"  # see renew.py

Array = NDArray[np.float32]

PLAIN, NORM, GATED = 0, 1, 2
THREE_QUARTERS = HALF + QUARTER  # a height of the micro-kernel
AHEAD = 64  # steps: so long before they are needed, weights are asked for
MANY = 64  # rows a thread, from which on the rows are shared
BLOCK = 128  # rows at once, which fit in a core's cache


@njit(error_model="numpy")
def normalise(x: Array, weight: Array, eps: float, row: Array) -> None:
    """row = x / sqrt(mean(x²) + eps) · weight. Squares are added in 16 lanes, then the lanes one by one."""
    width = len(row)
    whole = width // 16 * 16
    vectors = x[:whole].reshape(whole // 16, 16)
    lanes = np.zeros(16, dtype=np.float32)
    for start in range(len(vectors)):
        for lane in range(16):
            lanes[lane] += vectors[start, lane] * vectors[start, lane]
    total = 0.0
    for lane in range(16):
        total += lanes[lane]
    for i in range(whole, width):
        total += x[i] * x[i]
    scale = np.float32(1.0 / math.sqrt(total / width + eps))
    for i in range(width):
        row[i] = x[i] * scale * weight[i]


@njit(error_model="numpy")
def gate(x: Array, row: Array) -> None:
    """row = silu(left half of x) · right half, where silu(g) = g / (1 + e^-g)."""
    left, right = x[: len(row)], x[len(row) :]
    for i in range(len(row)):
        row[i] = left[i] / (np.float32(1) + exp(-left[i])) * right[i]


@njit(error_model="numpy")
def prepare(x: Array, before: int, weight: Array, eps: float, rows: Array) -> None:
    """The first of rows = f of x's rows, and then 0 up to a whole tile."""
    count, width = len(x), rows.shape[1]
    for t in range(count):
        if before == NORM:
            normalise(x[t], weight, eps, rows[t])
        elif before == GATED:
            gate(x[t], rows[t])
        else:
            source, row = x[t], rows[t]
            for i in range(width):
                row[i] = source[i]
    for t in range(count, (count + ROWS - 1) // ROWS * ROWS):
        rows[t] = 0


@njit(error_model="numpy")
def multiply(height: int, rows: Array, t: int, panels: Any, w_at: int, y: Array, at: int) -> None:
    """y[at + m * width] = row t + m times the panel at w_at, for a tile of `height` rows. y: (…, width)."""
    inputs, width = rows.shape[1], y.shape[1]
    x_at, soon = t * inputs, (panels, w_at + AHEAD * LANES, LANES)
    if height == ROWS:
        tile_product(
            ROWS, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width, soon, None
        )  # fmt: skip
    elif height == THREE_QUARTERS:
        tile_product(
            THREE_QUARTERS, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width,
            soon, None,
        )  # fmt: skip
    elif height == HALF:
        tile_product(
            HALF, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width, soon, None
        )  # fmt: skip
    else:
        tile_product(
            QUARTER, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width,
            soon, None,
        )  # fmt: skip


@njit(error_model="numpy")
def multiply_first(rows: Array, panels: Any, w_at: int, y: Array, at: int, wide: Array) -> None:
    """The same for a whole tile, the first, and the panel is left in wide (K, LANES) as float32."""
    inputs, width = rows.shape[1], y.shape[1]
    soon = (panels, w_at + AHEAD * LANES, LANES)
    tile_product(
        ROWS, LANES, False, inputs, rows, 0, inputs, 1, panels, w_at, LANES, y, at, width, soon, wide
    )  # fmt: skip


@njit(error_model="numpy")
def multiply_panel(
    panel: int, tokens: int, rows: Array, panels: Any, wide: Array, spare: Array, out: Array
) -> None:
    """out's columns of one panel, tile by tile; through spare (ROWS, LANES) where fewer than LANES are left.
    wide (K, LANES): to widen a panel into that is kept smaller, or empty."""
    outputs, first, w_at = out.shape[1], panel * LANES, panel * rows.shape[1] * LANES
    is_whole = first + LANES <= outputs
    for t in range(0, tokens, ROWS):
        height = tile_rows(tokens, t // ROWS)
        y, at = (out, t * outputs + first) if is_whole else (spare, 0)
        if len(wide) == 0 or tokens <= ROWS:
            multiply(height, rows, t, panels, w_at, y, at)
        elif t == 0:
            multiply_first(rows, panels, w_at, y, at, wide)
        else:
            multiply(height, rows, t, wide, 0, y, at)
        if not is_whole:
            for m in range(height):
                for lane in range(outputs - first):
                    out[t + m, first + lane] = spare[m, lane]


@njit(error_model="numpy")
def add(numbers: Array, target: Array) -> None:
    for i in range(len(target)):
        target[i] += numbers[i]


@njit(error_model="numpy")
def share(worker: int, workers: int, tokens: int) -> int:
    """Where a worker's rows begin, and for the last one end. At whole halves of a tile, for the micro-kernel
    writes ROWS where more than that is left, and these must not be another's, nor lie beyond out."""
    return worker * tokens // workers // HALF * HALF if worker < workers else tokens


@njit(parallel=True, cache=True, error_model="numpy")
def linear_loops(
    workers: int,
    x: Array,
    before: int,
    norm_weight: Array,
    eps: float,
    panels: Any,
    is_small: bool,
    inputs: int,
    bias: Array,
    residual: Array,
    out: Array,
) -> None:
    """x (T, K), if gated (T, 2·K) · panels (N / LANES, K, LANES), flat, as tile_product takes them; is_small:
    unless they are float32 · bias (N,) · residual (T, N) · out (T rounded up to whole tiles, N)."""
    tokens, outputs = len(x), out.shape[1]
    num_panels = (outputs + LANES - 1) // LANES
    for worker in prange(workers):
        begin, end, first, last = 0, tokens, 0, num_panels
        if tokens >= MANY * workers:
            begin, end = share(worker, workers, tokens), share(worker + 1, workers, tokens)
        else:
            first, last = worker * num_panels // workers, (worker + 1) * num_panels // workers
        rows = scratch(min(BLOCK, (end - begin + ROWS - 1) // ROWS * ROWS), inputs)
        wide = scratch(inputs if is_small and end - begin > ROWS else 0, LANES)
        spare = scratch(ROWS, LANES)
        left, right = first * LANES, min(last * LANES, outputs)
        for at in range(begin, end, BLOCK):
            after = min(at + BLOCK, end)
            prepare(x[at:after], before, norm_weight, eps, rows)
            for panel in range(first, last):
                multiply_panel(panel, after - at, rows, panels, wide, spare, out[at:])
            for t in range(at, after):
                if len(bias):
                    add(bias[left:right], out[t, left:right])
                if len(residual):
                    add(residual[t, left:right], out[t, left:right])
