"""A linear layer on a CPU, with what comes before and after it, as compiled parallel loops.

    y = W · f(x) + bias + residual           f: nothing, RMSNorm, or silu(left half) · right half

Two passes. The first applies f. The second walks over W in panels of LANES outputs, each thread over its own
share, so that every weight is read from memory once a call, however many rows there are:

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
from .numba_tile import HALF, LANES, QUARTER, ROWS, copy_lanes, tile_product, tile_rows

EXP_VERSION, TILE_VERSION = "ffb69fff", "1edc4fd2"

Array = NDArray[np.float32]

PLAIN, NORM, GATED = 0, 1, 2


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
def prepare(first: int, last: int, x: Array, before: int, weight: Array, eps: float, rows: Array) -> None:
    """rows[first:last] = f of x's rows, and 0 past the last of them."""
    for t in range(first, last):
        if t >= len(x):
            rows[t] = 0
        elif before == NORM:
            normalise(x[t], weight, eps, rows[t])
        elif before == GATED:
            gate(x[t], rows[t])
        else:
            rows[t] = x[t]


@njit(error_model="numpy")
def multiply(height: int, rows: Array, t: int, panels: Any, w_at: int, y: Array, at: int) -> None:
    """y[at + m * width] = row t + m times the panel at w_at, for a tile of `height` rows. y: (…, width)."""
    inputs, width = rows.shape[1], y.shape[1]
    x_at = t * inputs
    if height == ROWS:
        tile_product(ROWS, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width)
    elif height == HALF:
        tile_product(HALF, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width)
    else:
        tile_product(QUARTER, LANES, False, inputs, rows, x_at, inputs, 1, panels, w_at, LANES, y, at, width)


@njit(error_model="numpy")
def multiply_panel(
    first: int, tokens: int, rows: Array, panels: Any, w_at: int, outputs: int, spare: Array, out: Array
) -> None:
    """Columns `first` and on of out, tile by tile; through spare (ROWS, LANES) where fewer are left."""
    for t in range(0, tokens, ROWS):
        height = tile_rows(tokens, t // ROWS)
        if first + LANES <= outputs:
            multiply(height, rows, t, panels, w_at, out, t * outputs + first)
        else:
            multiply(height, rows, t, panels, w_at, spare, 0)
            for m in range(height):
                for lane in range(outputs - first):
                    out[t + m, first + lane] = spare[m, lane]


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
    tokens, (padded, outputs) = len(x), out.shape
    few = padded == ROWS
    shared = np.empty((0 if few else padded, inputs), np.float32)
    if not few:
        for worker in prange(workers):
            first, last = worker * padded // workers, (worker + 1) * padded // workers
            prepare(first, last, x, before, norm_weight, eps, shared)

    num_panels = (outputs + LANES - 1) // LANES
    for worker in prange(workers):
        spare = np.empty((ROWS, LANES), np.float32)
        is_widened = is_small and not few
        rows = shared
        if few:  # each thread for itself: to fetch them from another's cache takes longer
            rows = np.empty((ROWS, inputs), np.float32)
            prepare(0, ROWS, x, before, norm_weight, eps, rows)
        wide = np.empty(inputs * LANES if is_widened else 0, np.float32)
        first, last = worker * num_panels // workers, (worker + 1) * num_panels // workers
        for panel in range(first, last):
            if is_widened:
                for i in range(0, inputs * LANES, LANES):
                    copy_lanes(panels, panel * inputs * LANES + i, wide, i)
                multiply_panel(panel * LANES, tokens, rows, wide, 0, outputs, spare, out)
            else:
                w_at = panel * inputs * LANES
                multiply_panel(panel * LANES, tokens, rows, panels, w_at, outputs, spare, out)
        first, last = first * LANES, min(last * LANES, outputs)
        for t in range(tokens):
            if len(bias):
                out[t, first:last] += bias[first:last]
            if len(residual):
                out[t, first:last] += residual[t, first:last]
