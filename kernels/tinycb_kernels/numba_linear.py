"""A linear layer on a CPU, with what comes before and after it, as compiled parallel loops.

    y = W · f(x) + bias + residual           f: nothing, RMSNorm, or silu(left half) · right half

Two passes. The first applies f and lays the rows out for the micro-kernel, ROWS rows to a tile. The second
walks over W in panels of LANES outputs, each thread over its own share, so that every weight is read from
memory once a call, however many rows there are:

    W (N, K)   ─ pack_weight ─▶   panels (N / LANES, K, LANES)       x (T, K)   ─ lay_out ─▶  tiles (K, ROWS)

A row's result has the same bits alone and among hundreds: f is computed row by row in an order of its own,
and a product is one chain over K (numba_tile.py).

It checks nothing; linear.py does. Read next: numba_attention.py.
"""

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from .numba_tile import HALF, LANES, QUARTER, ROWS, exp, tile_product, tile_rows

TILE_VERSION = "0b84ad12"

Array = NDArray[np.float32]

PLAIN, NORM, GATED = 0, 1, 2


@njit(error_model="numpy")
def normalise(x: Array, weight: Array, eps: float, row: Array) -> None:
    """row = x / sqrt(mean(x²) + eps) · weight. Squares are added in 16 lanes, then the lanes one by one."""
    width = len(row)
    whole = width // 16 * 16
    lanes = np.zeros(16, dtype=np.float32)
    for start in range(0, whole, 16):
        for lane in range(16):
            lanes[lane] += x[start + lane] * x[start + lane]
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
    width = len(row)
    for i in range(width):
        row[i] = x[i] / (np.float32(1) + exp(-x[i])) * x[width + i]


@njit(error_model="numpy")
def lay_out(x: Array, tile: int, before: int, weight: Array, eps: float, row: Array, packed: Array) -> None:
    """f of the tile's rows into packed (K, rows), so that the micro-kernel reads it from front to back."""
    inputs, rows = packed.shape
    for m in range(rows):
        t = tile * ROWS + m
        if t >= len(x):
            row[:] = 0
        elif before == NORM:
            normalise(x[t], weight, eps, row)
        elif before == GATED:
            gate(x[t], row)
        else:
            row[:] = x[t]
        for i in range(inputs):
            packed[i, m] = row[i]


@njit(error_model="numpy")
def lay_out_tiles(
    first: int, step: int, x: Array, before: int, weight: Array, eps: float, inputs: int, packed: Array
) -> None:
    """Tiles number first, first + step, … of x. packed: all tiles one after another, flat."""
    row = np.empty(inputs, np.float32)
    for tile in range(first, (len(x) + ROWS - 1) // ROWS, step):
        rows, start = tile_rows(len(x), tile), tile * ROWS * inputs
        place = packed[start : start + rows * inputs].reshape(inputs, rows)
        lay_out(x, tile, before, weight, eps, row, place)


@njit(error_model="numpy")
def multiply(
    rows: int, inputs: int, packed: Array, x_at: int, panels: NDArray[Any], w_at: int, y: Array
) -> None:
    """y (rows, LANES) = a tile of rows times a panel of weights."""
    if rows == ROWS:
        tile_product(ROWS, False, inputs, packed, x_at, 1, ROWS, panels, w_at, LANES, y, 0, LANES)
    elif rows == HALF:
        tile_product(HALF, False, inputs, packed, x_at, 1, HALF, panels, w_at, LANES, y, 0, LANES)
    else:
        tile_product(QUARTER, False, inputs, packed, x_at, 1, QUARTER, panels, w_at, LANES, y, 0, LANES)


@njit(error_model="numpy")
def store(y: Array, tile: int, first: int, bias: Array, residual: Array, out: Array) -> None:
    """out's rows of this tile, columns from `first` on: y, plus bias and residual if there are any."""
    columns = min(LANES, out.shape[1] - first)
    for m in range(min(ROWS, len(out) - tile * ROWS)):
        target = out[tile * ROWS + m, first : first + columns]
        for lane in range(columns):
            target[lane] = y[m, lane]
        if len(bias):
            for lane in range(columns):
                target[lane] += bias[first + lane]
        if len(residual):
            source = residual[tile * ROWS + m, first : first + columns]
            for lane in range(columns):
                target[lane] += source[lane]


@njit(parallel=True, cache=True, error_model="numpy")
def linear_loops(
    workers: int,
    x: Array,
    before: int,
    norm_weight: Array,
    eps: float,
    panels: NDArray[Any],
    inputs: int,
    bias: Array,
    residual: Array,
    out: Array,
) -> None:
    """x (T, K), if gated (T, 2·K) · panels (N / LANES, K, LANES), flat · bias (N,) · residual, out (T, N)."""
    tiles = (len(x) + ROWS - 1) // ROWS
    packed = np.empty(tiles * ROWS * inputs, np.float32)
    if tiles == 1:  # waking another thread takes longer
        lay_out_tiles(0, 1, x, before, norm_weight, eps, inputs, packed)
    else:
        for worker in prange(workers):
            lay_out_tiles(worker, workers, x, before, norm_weight, eps, inputs, packed)

    num_panels = (out.shape[1] + LANES - 1) // LANES
    for worker in prange(workers):
        y = np.empty((ROWS, LANES), np.float32)
        for panel in range(worker * num_panels // workers, (worker + 1) * num_panels // workers):
            for tile in range(tiles):
                rows, at = tile_rows(len(x), tile), tile * ROWS * inputs
                multiply(rows, inputs, packed, at, panels, panel * inputs * LANES, y)
                store(y, tile, panel * LANES, bias, residual, out)
