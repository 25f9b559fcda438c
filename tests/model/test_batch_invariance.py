"""The same bits whoever else is in the batch: fp32 on a CPU, with the Numba loops.

Compared with `torch.equal`, never with a tolerance. `F.linear`, torch's `silu` and its attention do not have
this property; each part that replaces one is tested alone, and then the whole model.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from model_driver import Sequences, chop, make_executor

from tinycb.model.checkpoint import LoadedModel
from tinycb.model.linear import Linear, RMSNorm, can_pack, silu_and_mul
from tinycb.model.rope import RotaryTable
from tinycb.model.tiny_random import TINY_CONFIG

CPU = torch.device("cpu")
packed = pytest.mark.skipif(
    not can_pack(CPU, torch.float32),
    reason="Numba is not installed: torch multiplies, and promises nothing about bits",
)
ROWS = [*range(1, 36), 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 200, 255, 256, 257, 383, 512, 599, 600]


def windows(total: int) -> list[tuple[int, int]]:
    """Row ranges to compare with the whole: each count, at an even and at an odd place."""
    return [(start, start + n) for n in ROWS for start in (0, 3) if start + n <= total]


def whole_and_parts(
    linear: Linear, x: torch.Tensor, residual: torch.Tensor | None = None, norm: RMSNorm | None = None
) -> None:
    whole = linear(x, residual=residual, norm=norm)
    for start, end in windows(len(x)):
        part = linear(x[start:end], residual=None if residual is None else residual[start:end], norm=norm)
        assert torch.equal(part, whole[start:end]), f"{end - start} rows from {start}"


@packed
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(576, 960), (576, 576), (576, 3072), (1536, 576), (96, 160), (192, 96), (96, 256), (100, 37), (7, 5)],
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_product(inputs: int, outputs: int, bias: bool) -> None:
    torch.manual_seed(inputs + outputs)
    linear = Linear(torch.randn(outputs, inputs), torch.randn(outputs) if bias else None)
    whole_and_parts(linear, torch.randn(600, inputs), torch.randn(600, outputs))


@packed
@pytest.mark.parametrize("inputs", [7, 77, 96, 576])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_product_after_a_norm_or_before_a_gate(inputs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(inputs)
    linear = Linear((torch.randn(40, inputs) / inputs**0.5).to(dtype))
    residual = torch.randn(600, 40)
    whole_and_parts(linear, torch.randn(600, inputs), residual, norm=RMSNorm(torch.randn(inputs), 1e-5))
    gated = Linear((torch.randn(80, inputs) / inputs**0.5).to(dtype), torch.randn(80), gated=True)
    whole_and_parts(gated, torch.randn(600, inputs))


@packed
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (100, 37), (7, 5), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_product_is_right(inputs: int, outputs: int, dtype: torch.dtype) -> None:
    """Against torch in float64, for each tile height of the micro-kernel and one row more."""
    torch.manual_seed(inputs)
    weight = (torch.randn(outputs, inputs) / inputs**0.5).to(dtype)
    bias, norm = torch.randn(outputs), RMSNorm(torch.ones(inputs).double(), 0.0)
    linear = Linear(weight, bias)
    wide = torch.cat([weight, weight.flip(0)]), torch.cat([bias, -bias])
    gated = Linear(*wide, gated=True)
    for rows in (0, 1, 4, 5, 8, 9, 16, 17, 20, 21, 33):
        x, residual = torch.randn(rows, inputs).bfloat16().float(), torch.randn(rows, outputs)
        even = x.sign() * 2  # whose norm is 1 or -1, in any dtype
        plain = F.linear(x.double(), weight.double(), bias.double())
        cases = {
            "plain": (linear(x), plain),
            "residual": (linear(x, residual=residual), plain + residual),
            "norm": (linear(even, norm=norm), F.linear(norm(even.double()), weight.double(), bias.double())),
            "gated": (gated(x), silu_and_mul(F.linear(x.double(), *(part.double() for part in wide)))),
        }
        for name, (have, want) in cases.items():
            assert have.dtype == torch.float32
            assert torch.allclose(have.double(), want, rtol=1e-5, atol=2e-5), (name, rows)


@packed
def test_the_head_of_smollm2() -> None:
    torch.manual_seed(0)
    linear = Linear(torch.randn(49152, 576))
    x = torch.randn(64, 576)
    whole = linear(x)
    for count in (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64):
        assert torch.equal(linear(x[:count]), whole[:count])
        assert torch.equal(linear(x[-count:]), whole[-count:])


@packed
def test_the_gate_is_right_for_every_size_of_number() -> None:
    special = [
        0.0,
        -0.0,
        1e-30,
        -1e-30,
        88.0,
        -88.0,
        200.0,
        -200.0,
        3e38,
        -3e38,
        torch.inf,
        -torch.inf,
        torch.nan,
    ]
    gate = torch.cat([torch.linspace(-100, 100, 40000), torch.tensor(special)])
    have = Linear(torch.ones(2, 1), gated=True)(gate.unsqueeze(1))[:, 0]
    want = (F.silu(gate.double()) * gate.double()).float()
    assert torch.allclose(have, want, rtol=3e-7, atol=1e-30, equal_nan=True)


def test_a_cosine_does_not_depend_on_how_long_the_table_is() -> None:
    positions = torch.arange(40)
    short, long = RotaryTable(TINY_CONFIG, CPU, torch.float32), RotaryTable(TINY_CONFIG, CPU, torch.float32)
    long.at(positions, 511)
    for a, b in zip(short.at(positions, 40), long.at(positions, 40), strict=True):
        assert torch.equal(a, b)


def same_bits(loaded: LoadedModel, path: str, lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocab = loaded.config.vocab_size
    sequences = [[int(t) for t in rng.integers(1, vocab, n)] for n in lengths]
    settings = {"backend": "numba", "num_blocks": 128}

    def fresh(some: list[list[int]], **more: object) -> Sequences:
        return Sequences(make_executor(loaded, path, **settings | more), some, seed=int(rng.integers(99)))

    alone = [fresh([s]).run([[len(s)]])[0] for s in sequences]

    together = fresh(sequences).run([[n] for n in lengths])
    chunked = fresh(sequences).run([chop(n, rng, 9) for n in lengths])
    decoded = fresh(sequences[:2]).run([[1] * n for n in lengths[:2]])
    other_blocks = fresh(sequences, block_size=5).run([[n] for n in lengths])
    for name, runs in [
        ("together", together),
        ("in chunks", chunked),
        ("token by token", decoded),
        ("with blocks of 5", other_blocks),
    ]:
        for r, logits in enumerate(runs):
            assert torch.equal(logits, alone[r]), f"{path}: request {r} has other bits {name}"

    # A prefix hit: the second request reads the first one's blocks instead of computing them.
    shared = lengths[0] // 16 * 16
    tail = sequences[0][:shared] + [int(t) for t in rng.integers(1, vocab, 11)]
    expected = fresh([tail]).run([[len(tail)]])[0]
    hit = fresh([sequences[0], tail])
    hit.step([lengths[0], 0])
    hit.tables[1][: shared // 16] = hit.tables[0][: shared // 16]
    hit.computed[1] = shared
    (_, logits) = hit.step([0, len(tail) - shared])
    assert torch.equal(logits, expected[shared:]), f"{path}: other bits after a prefix hit"

    # Preemption: half computed, its blocks taken, computed again beside others.
    again = fresh(sequences)
    again.step([lengths[0] // 2, *[min(n, 3) for n in lengths[1:]]])
    again.computed[0] = 0
    again.tables[0].reverse()
    logits = again.step([lengths[0], *[min(n - 3, 2) if n > 3 else 0 for n in lengths[1:]]])[0]
    assert torch.equal(logits, alone[0]), f"{path}: other bits after preemption"


@packed
@pytest.mark.parametrize("path", ["paged", "varlen"])
def test_tiny_random_has_the_same_bits(tiny: LoadedModel, path: str) -> None:
    same_bits(tiny, path, [70, 33, 1, 16, 200, 5, 48], seed=0)


@packed
@pytest.mark.smollm2
@pytest.mark.parametrize("path", ["paged", "varlen"])
def test_smollm2_has_the_same_bits(smollm2: LoadedModel, path: str) -> None:
    same_bits(smollm2, path, [40, 17, 1, 61], seed=1)
