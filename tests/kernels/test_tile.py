"""The micro-kernel under every CPU product, and what keeps its compiled copies fresh."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("numba", reason="Numba is not installed: torch multiplies")

from numba import njit

from tinycb_kernels.numba_exp import exp
from tinycb_kernels.numba_tile import HALF, LANES, NARROW, QUARTER, ROWS, tile_product
from tinycb_kernels.renew import stale_files

SHAPES = [(ROWS, LANES), (HALF, LANES), (QUARTER, LANES), (1, LANES), (ROWS, NARROW)]


@njit
def store(shape, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row, soon):
    if shape == 0:
        tile_product(
            ROWS, LANES, False, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row,
            soon, None,
        )  # fmt: skip
    elif shape == 1:
        tile_product(
            HALF, LANES, False, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row,
            soon, None,
        )  # fmt: skip
    elif shape == 2:
        tile_product(
            QUARTER, LANES, False, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row,
            soon, None,
        )  # fmt: skip
    elif shape == 3:
        tile_product(
            1, LANES, True, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row, soon, None
        )  # fmt: skip
    else:
        tile_product(
            ROWS, NARROW, False, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row,
            soon, None,
        )  # fmt: skip


def product(shape, count, x, x_at, x_row, x_step, w, w_at, w_step, out, out_at, out_row):
    """The docstring's loop, each multiply-add rounded once to float32 (exact in float64, then rounded)."""
    rows, lanes = SHAPES[shape]
    for m in range(rows):
        for lane in range(lanes):
            total = out[out_at + m * out_row + lane] if rows == 1 else np.float32(0)
            for i in range(count):
                a = float(x[x_at + m * x_row + i * x_step]) * float(w[w_at + i * w_step + lane])
                total = np.float32(math.fsum((a, float(total))))
            out[out_at + m * out_row + lane] = total


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("count", [0, 1, 7])
def test_it_is_the_loop_of_its_docstring_to_the_last_bit(shape: int, count: int) -> None:
    random = np.random.default_rng(shape + count)
    x, w = (random.standard_normal(2000).astype(np.float32) for _ in range(2))
    have = random.standard_normal(1000).astype(np.float32)
    want = have.copy()
    arguments = (x, 5, 20, 2, w, 3, LANES + 1)
    store(shape, count, *arguments, have, 11, LANES + 2, None)
    product(shape, count, *arguments, want, 11, LANES + 2)
    assert have.tobytes() == want.tobytes()
    store(shape, count, *arguments, have, 11, LANES + 2, (w, 10**9, 10**6, 7))  # where nothing lies
    if SHAPES[shape][0] == 1:
        product(shape, count, *arguments, want, 11, LANES + 2)
    assert have.tobytes() == want.tobytes()


@njit
def exp_of_all(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


def test_exp_is_within_two_units_in_the_last_place_and_alike_in_vectors() -> None:
    x = np.linspace(-87, 88, 20001).astype(np.float32)
    one_by_one = np.array([exp(value) for value in x], dtype=np.float32)
    assert np.max(np.abs(one_by_one.astype(np.float64) / np.exp(x.astype(np.float64)) - 1)) < 2.4e-7
    in_vectors = np.empty_like(x)
    exp_of_all(x, in_vectors)
    assert in_vectors.tobytes() == one_by_one.tobytes()


def test_exp_ends_in_0_and_infinity_and_keeps_nan() -> None:
    assert exp(np.float32(-88)) == exp(np.float32(-np.inf)) == 0
    assert exp(np.float32(89)) == exp(np.float32(np.inf)) == np.inf
    assert np.isnan(exp(np.float32(np.nan)))


def test_whoever_changes_a_part_renews_the_loops_that_numba_has_kept() -> None:
    """Numba compiles anew when the file of the outermost loop changes, and not when another does."""
    assert not stale_files(), "run `python -m tinycb_kernels.renew`, and commit what it changes"
