"""A linear layer on a CPU, with what comes before and after it, as compiled parallel loops.

    y = W · f(x) + bias + residual                 f: RMSNorm, or nothing
    y = silu(gate) · up + residual                 gate and up: the halves of W · f(x) + bias

Threads share the outputs if the rows are few, and otherwise the rows. Each prepares f of its rows for itself
and walks over W in panels of LANES outputs: so the rows that it works on are in its own cache, where it wrote
them. Gates and ups lie in panels in turn, so that the same thread has both, and half as much is written.

    W (N, K)   ─ pack_weight ─▶   panels (N / LANES, K, LANES)

A panel that is kept smaller than in float32 is widened as it is multiplied, or, where several tiles of rows
are, once for all of them. Where a processor multiplies pairs of bfloat16, a panel of these is left as it is,
and x is rounded to the same: twice the products a step.

    panels of pairs (N / LANES, K / 2, LANES, 2)

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
from .numba_tile import HALF, QUARTER, ROWS, as_stored, copy_lanes, scratch, tile_product, tile_rows
from .numba_vectors import LANES

PARTS_VERSION = "db3dda0a"  # see renew.py

Array = NDArray[np.float32]

FLOATS, SMALL, PAIRS = 0, 1, 2  # how panels are kept: float32, to be widened, pairs
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
def prepare(x: Array, norm_weight: Array, eps: float, kept: int, row: Array, rows: Array) -> None:
    """The first of rows (…, steps) = f of x's rows, as numbers or as pairs, and then 0 up to a whole tile.
    row (K,): scratch."""
    count, width = len(x), x.shape[1]
    halves = rows.view(np.uint16)
    for t in range(count):
        target = row if kept == PAIRS else rows[t]
        if len(norm_weight):
            normalise(x[t], norm_weight, eps, target)
        else:
            source = x[t]
            for i in range(width):
                target[i] = source[i]
        if kept == PAIRS:
            half = halves[t]
            half[-1] = 0  # which an odd width leaves over
            for i in range(width):
                half[i] = as_stored(row[i], half)
    for t in range(count, (count + ROWS - 1) // ROWS * ROWS):
        rows[t] = 0


@njit(error_model="numpy")
def multiply(height: int, rows: Array, t: int, panels: Any, w_at: int, y: Array, at: int) -> None:
    """y[at + m * width] = row t + m times the panel at w_at, for a tile of `height` rows. y: (…, width)."""
    steps, width = rows.shape[1], y.shape[1]
    x_at, soon = t * steps, (panels, w_at + AHEAD * LANES, LANES)
    if height == ROWS:
        tile_product(
            ROWS, LANES, False, steps, rows, x_at, steps, 1, panels, w_at, LANES, y, at, width, soon, None
        )  # fmt: skip
    elif height == THREE_QUARTERS:
        tile_product(
            THREE_QUARTERS, LANES, False, steps, rows, x_at, steps, 1, panels, w_at, LANES, y, at, width,
            soon, None,
        )  # fmt: skip
    elif height == HALF:
        tile_product(
            HALF, LANES, False, steps, rows, x_at, steps, 1, panels, w_at, LANES, y, at, width, soon, None
        )  # fmt: skip
    else:
        tile_product(
            QUARTER, LANES, False, steps, rows, x_at, steps, 1, panels, w_at, LANES, y, at, width,
            soon, None,
        )  # fmt: skip


@njit(error_model="numpy")
def multiply_first(rows: Array, panels: Any, w_at: int, y: Array, at: int, wide: Array) -> None:
    """The same for a whole tile, the first, and the panel is left in wide (K, LANES) as float32."""
    steps, width = rows.shape[1], y.shape[1]
    soon = (panels, w_at + AHEAD * LANES, LANES)
    tile_product(
        ROWS, LANES, False, steps, rows, 0, steps, 1, panels, w_at, LANES, y, at, width, soon, wide
    )  # fmt: skip


@njit(error_model="numpy")
def multiply_tile(
    panel: int, t: int, tokens: int, rows: Array, panels: Any, wide: Array, y: Array, at: int
) -> int:
    """The same for the tile that begins at row t, of `tokens`. Returns its height.
    wide (K, LANES): to widen a panel into that is kept smaller, or empty."""
    height, w_at = tile_rows(tokens, t // ROWS), panel * rows.shape[1] * LANES
    if len(wide) == 0 or tokens <= ROWS:
        multiply(height, rows, t, panels, w_at, y, at)
    elif t == 0:
        multiply_first(rows, panels, w_at, y, at, wide)
    else:
        multiply(height, rows, t, wide, 0, y, at)
    return height


@njit(error_model="numpy")
def store(numbers: Array, height: int, out: Array, t: int, first: int) -> None:
    """numbers (ROWS, LANES) to rows t… and columns first… of out, as many as there are."""
    outputs = out.shape[1]
    for m in range(height):
        if first + LANES <= outputs:
            copy_lanes(numbers, m * LANES, out, (t + m) * outputs + first)
        else:
            for lane in range(outputs - first):
                out[t + m, first + lane] = numbers[m, lane]


@njit(error_model="numpy")
def plain_panel(
    panel: int, tokens: int, rows: Array, panels: Any, wide: Array, spare: Array, out: Array
) -> None:
    """out's columns of one panel, tile by tile; through spare (ROWS, LANES) where fewer than LANES remain."""
    outputs, first = out.shape[1], panel * LANES
    for t in range(0, tokens, ROWS):
        if first + LANES <= outputs:
            multiply_tile(panel, t, tokens, rows, panels, wide, out, t * outputs + first)
        else:
            height = multiply_tile(panel, t, tokens, rows, panels, wide, spare, 0)
            store(spare, height, out, t, first)


@njit(error_model="numpy")
def gated_panel(
    panel: int, tokens: int, rows: Array, panels: Any, wide: Array, spare: Array, bias: Array, out: Array
) -> None:
    """out's columns of a panel of gates and one of ups. wide (2, K, LANES), spare (2, ROWS, LANES)."""
    for t in range(0, tokens, ROWS):
        height = 0
        for part in range(2):
            number, numbers = 2 * panel + part, spare[part]
            height = multiply_tile(number, t, tokens, rows, panels, wide[part], numbers, 0)
            if len(bias):
                for m in range(height):
                    add(bias[number * LANES : (number + 1) * LANES], numbers[m])
        gate(spare[0].reshape(-1), spare[1].reshape(-1), height * LANES)
        store(spare[0], height, out, t, panel * LANES)


@njit(error_model="numpy")
def gate(left: Array, right: Array, count: int) -> None:
    """left = silu(left) · right, where silu(g) = g / (1 + e^-g)."""
    for i in range(count):
        left[i] = left[i] / (np.float32(1) + exp(-left[i])) * right[i]


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
    norm_weight: Array,
    eps: float,
    panels: Any,
    kept: int,
    steps: int,
    gated: bool,
    bias: Array,
    residual: Array,
    out: Array,
) -> None:
    """x (T, K) · norm_weight (K,) · panels (P, steps, LANES), flat, as tile_product takes them; kept: how;
    gated: whether gates and ups take turns · bias (P * LANES,) · residual (T, N) · out (T rounded up to whole
    tiles, N). Where there is no norm, bias or residual, it is empty."""
    tokens, outputs = len(x), out.shape[1]
    num_panels = (outputs + LANES - 1) // LANES
    for worker in prange(workers):
        begin, end, first, last = 0, tokens, 0, num_panels
        if tokens >= MANY * workers:
            begin, end = share(worker, workers, tokens), share(worker + 1, workers, tokens)
        else:
            first, last = worker * num_panels // workers, (worker + 1) * num_panels // workers
        rows = scratch(min(BLOCK, (end - begin + ROWS - 1) // ROWS * ROWS), steps)
        row = np.empty(x.shape[1] if kept == PAIRS else 0, np.float32)
        widened = steps if kept == SMALL and end - begin > ROWS else 0
        wide = scratch(2 * widened, LANES).reshape(2, widened, LANES)
        spare = scratch(2 * ROWS, LANES).reshape(2, ROWS, LANES)
        left, right = first * LANES, min(last * LANES, outputs)
        for at in range(begin, end, BLOCK):
            after = min(at + BLOCK, end)
            prepare(x[at:after], norm_weight, eps, kept, row, rows)
            for panel in range(first, last):
                if gated:
                    gated_panel(panel, after - at, rows, panels, wide, spare, bias, out[at:])
                else:
                    plain_panel(panel, after - at, rows, panels, wide[0], spare[0], out[at:])
            for t in range(at, after):
                if len(bias) and not gated:
                    add(bias[left:right], out[t, left:right])
                if len(residual):
                    add(residual[t, left:right], out[t, left:right])
