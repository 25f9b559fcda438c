"""The micro-kernel under every CPU product, and what keeps its compiled copies fresh."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="Numba is not installed: torch multiplies")

from numba import njit
from numba.extending import is_jitted

from tinycb_kernels.numba_exp import exp, exp_lanes
from tinycb_kernels.numba_fold import TOGETHER, fold_largest, fold_sum
from tinycb_kernels.numba_threads import STORED_AS
from tinycb_kernels.numba_tile import HALF, NARROW, QUARTER, ROWS, as_stored, rounded, tile_product
from tinycb_kernels.numba_vectors import HAS_PAIRS, LANES
from tinycb_kernels.renew import FOLDER, stale_files

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
def exp_of_one(x):
    return exp(x)


@njit
def exp_of_all(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


@njit
def exp_in_lanes(numbers, bases):
    for at in range(0, len(numbers), LANES):
        exp_lanes(numbers, at, bases)


def test_exp_is_within_two_units_in_the_last_place_and_alike_in_vectors() -> None:
    x = np.linspace(-87, 88, 1250 * LANES).astype(np.float32)
    one_by_one = np.array([exp_of_one(value) for value in x], dtype=np.float32)
    assert np.max(np.abs(one_by_one.astype(np.float64) / np.exp(x.astype(np.float64)) - 1)) < 2.4e-7
    in_vectors = np.empty_like(x)
    exp_of_all(x, in_vectors)
    assert in_vectors.tobytes() == one_by_one.tobytes()
    bases = np.arange(LANES, dtype=np.float32)
    in_lanes = (x.reshape(-1, LANES) + bases).reshape(-1)
    exp_of_all((in_lanes.reshape(-1, LANES) - bases).reshape(-1), in_vectors)
    exp_in_lanes(in_lanes, bases)
    assert in_lanes.tobytes() == in_vectors.tobytes()


def test_exp_ends_in_0_and_infinity_and_keeps_nan() -> None:
    assert exp_of_one(np.float32(-88)) == exp_of_one(np.float32(-np.inf)) == 0
    assert exp_of_one(np.float32(89)) == exp_of_one(np.float32(np.inf)) == np.inf
    assert np.isnan(exp_of_one(np.float32(np.nan)))


@njit
def keep(numbers, kept, back):
    for i in range(len(numbers)):
        kept[i] = as_stored(numbers[i], kept)
        back[i] = rounded(numbers[i], kept)


WIDE_LARGEST, WIDE_SUM = fold_largest(LANES), fold_sum(LANES)
NARROW_LARGEST, NARROW_SUM = fold_largest(NARROW), fold_sum(NARROW)


@njit
def store_folded(wide, numbers, largest, total):
    if wide:
        WIDE_LARGEST(numbers, LANES, largest)
        WIDE_SUM(numbers, LANES, total)
    else:
        NARROW_LARGEST(numbers, NARROW, largest)
        NARROW_SUM(numbers, NARROW, total)


@pytest.mark.parametrize("lanes", [LANES, NARROW])
def test_eight_rows_are_folded_in_the_order_of_the_docstring(lanes: int) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((TOGETHER + 1, lanes)).astype(np.float32)  # the first is passed over
    rows[3, 0], rows[:, 1], rows[4, 2] = np.nan, -np.inf, np.inf
    before = random.standard_normal(lanes).astype(np.float32)
    before[1] = -np.inf
    largest, total = before.copy(), before.copy()
    store_folded(lanes == LANES, rows.reshape(-1), largest, total)
    pairs = rows[1::2] + rows[2::2]
    fours = pairs[::2] + pairs[1::2]
    assert total.tobytes() == (before + (fours[0] + fours[1])).tobytes()
    assert np.isnan(total[0])
    assert not np.isnan(largest[0])  # so that a score that is NaN gets a weight that is
    assert (largest == np.maximum(before, rows[1:].max(axis=0)))[1:].all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_numbers_are_kept_in_16_bits_as_torch_keeps_them(dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**31), 2**31, (50_000,), generator=torch.Generator().manual_seed(0))
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.39e38, 65519.0, 65520.0, 1e-42])
    halfway = torch.arange(1, 3000, dtype=torch.int32) * 2**15  # between two bfloat16, each second of them
    numbers = torch.cat([bits.int().view(torch.float32), special, halfway.view(torch.float32), -special])
    want, back = numbers.to(dtype), torch.empty_like(numbers)
    have = torch.empty_like(want)
    keep(numbers.numpy(), have.view(STORED_AS[dtype]).numpy(), back.numpy())
    assert torch.equal(have.isnan(), want.isnan())
    is_number = ~want.isnan()
    assert torch.equal(have[is_number].view(STORED_AS[dtype]), want[is_number].view(STORED_AS[dtype]))
    assert torch.equal(back[is_number], want[is_number].float())
    assert back.isnan().equal(want.isnan())


@njit
def store_pairs(x, w, out):
    steps = len(w) // LANES
    tile_product(ROWS, LANES, False, steps, x, 0, steps, 1, w, 0, LANES, out, 0, LANES, None, None)


@pytest.mark.skipif(not HAS_PAIRS, reason="this processor multiplies no pairs of bfloat16 (AVX512-BF16)")
def test_a_step_of_pairs_adds_two_products() -> None:
    x, w = torch.randn(ROWS, 14).bfloat16(), torch.randn(14, LANES).bfloat16()
    pairs = w.view(7, 2, LANES).transpose(1, 2).contiguous()  # (steps, LANES, 2)
    have = torch.zeros(ROWS, LANES)
    store_pairs(
        *(part.numpy().reshape(-1) for part in (x.view(torch.float32), pairs.view(torch.int32), have))
    )
    torch.testing.assert_close(have.double(), x.double() @ w.double(), rtol=1e-5, atol=1e-5)


def test_no_two_compiled_functions_have_one_name() -> None:
    """Compiled code is found by name and types, and what another process has kept under a name may be
    the other of two: so a softmax for 4 rows ran in place of the one for 16, when two processes had
    compiled at once."""
    modules = [
        importlib.import_module(f"tinycb_kernels.{path.stem}") for path in sorted(FOLDER.glob("numba_*.py"))
    ]
    functions = {
        id(value): value for module in modules for value in vars(module).values() if is_jitted(value)
    }
    names = [(one.py_func.__module__, one.py_func.__qualname__) for one in functions.values()]
    assert len(names) > 20
    assert len(names) == len(set(names))


def test_whoever_changes_a_part_renews_the_loops_that_numba_has_kept() -> None:
    """Numba compiles anew when the file of the outermost loop changes, and not when another does."""
    assert not stale_files(), "run `python -m tinycb_kernels.renew`, and commit what it changes"
