"""The packed linear layer: the product that float64 gives, and the same bits however its weight is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("numba", reason="Numba is not installed: torch multiplies")

from tinycb_kernels import linear
from tinycb_kernels.huge_pages import zeros
from tinycb_kernels.linear import PackedWeight, pack_weight, packed_linear
from tinycb_kernels.numba_linear import PAIRS, SMALL, linear_loops
from tinycb_kernels.numba_tile import ROWS

ROW_COUNTS = (1, 4, 5, 16, 17, 40)
# Of GGUF's formats: how many integers there are, and whether the smallest stands for a number of its own.
FORMATS = {
    "Q4_0": (16, False),
    "Q4_1": (16, True),
    "Q5_0": (32, False),
    "Q5_1": (32, True),
    "Q8_0": (255, False),
}


def quantised(outputs: int, inputs: int, name: str, seed: int = 0) -> Tensor:
    """A weight (N, K) as it comes out of a file of this format: half precision scales, 32 integers each."""
    levels, has_smallest = FORMATS[name]
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs // 32, 32, generator=random)
    lowest, highest = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    if has_smallest:
        scale = ((highest - lowest) / (levels - 1)).half().float()
        smallest = lowest.half().float()
        integers = ((weight - smallest) / scale).round().clamp(0, levels - 1)
        integers.scatter_(-1, weight.argmin(-1, keepdim=True), 0)
        integers.scatter_(-1, weight.argmax(-1, keepdim=True), levels - 1)
        return (integers * scale + smallest).view(outputs, inputs)
    furthest = weight.gather(-1, weight.abs().argmax(-1, keepdim=True))
    steps = 127 if levels == 255 else levels // 2
    scale = (furthest.abs() / steps).half().float()
    integers = (weight / scale).round().clamp(-steps, steps)
    integers.scatter_(-1, weight.abs().argmax(-1, keepdim=True), furthest.sign() * steps)
    return (integers * scale).view(outputs, inputs)


def kept_as_float32(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> PackedWeight:
    with monkeypatch.context() as patch:
        patch.setattr(linear, "as_bytes", lambda weight, order: None)
        patch.setattr(linear, "as_bfloat16", lambda weight: weight)
        return pack_weight(weight)


def assert_same_products(small: PackedWeight, wide: PackedWeight) -> None:
    for rows in ROW_COUNTS:
        x = torch.randn(rows, small.inputs)
        assert torch.equal(packed_linear(x, small), packed_linear(x, wide))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("outputs", "inputs"), [(40, 64), (7, 96), (64, 32)])
def test_a_weight_made_from_integers_is_kept_as_bytes_and_multiplies_to_the_same_bits(
    name: str, outputs: int, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = quantised(outputs, inputs, name)
    small = pack_weight(weight)
    assert isinstance(small.panels, tuple)
    assert_same_products(small, kept_as_float32(weight, monkeypatch))


def test_bytes_take_less_than_a_third_of_the_memory() -> None:
    weight = quantised(64, 64, "Q4_1")
    assert pack_weight(weight).nbytes <= 0.32 * weight.nbytes


@pytest.mark.parametrize("at", [(0, 0), (0, 63), (39, 31), (17, 40)])
def test_one_number_off_by_one_bit_and_the_weight_stays_as_it_is(
    at: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = quantised(40, 64, "Q4_1")
    weight[at] = np.nextafter(weight[at].item(), np.float32(np.inf), dtype=np.float32).item()
    packed = pack_weight(weight)
    assert packed.kept != SMALL
    assert_same_products(packed, kept_as_float32(weight, monkeypatch))


def test_groups_of_one_number_of_zeros_and_of_several_formats_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = torch.cat([quantised(8, 64, name) for name in FORMATS])
    weight[3], weight[11, :32] = 0.0, -0.75
    small = pack_weight(weight)
    assert isinstance(small.panels, tuple)
    assert_same_products(small, kept_as_float32(weight, monkeypatch))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_no_integer(odd: float) -> None:
    weight = quantised(16, 32, "Q8_0")
    weight[5, 7] = odd
    assert not isinstance(pack_weight(weight).panels, tuple)


@pytest.mark.parametrize("inputs", [48, 64])
def test_a_bfloat16_weight_in_float32_takes_half_the_memory_and_multiplies_to_the_same_bits(
    inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.randn(40, inputs).bfloat16().float()
    small = pack_weight(weight)
    assert small.nbytes * 2 == kept_as_float32(weight, monkeypatch).nbytes
    assert_same_products(small, kept_as_float32(weight, monkeypatch))


@given(
    rows=st.one_of(st.integers(1, 40), st.integers(120, 420)),  # from 128 on, threads share the rows
    outputs=st.integers(1, 50),
    inputs=st.sampled_from([1, 8, 32, 48, 96]),
    around=st.sampled_from(["nothing", "norm", "gate"]),
    has_bias=st.booleans(),
    has_residual=st.booleans(),
    kind=st.sampled_from(["float32", "bfloat16", "float16", "bytes"]),
    seed=st.integers(0, 99),
)
def test_it_is_the_product_and_a_row_has_the_same_bits_alone(
    rows: int,
    outputs: int,
    inputs: int,
    around: str,
    has_bias: bool,
    has_residual: bool,
    kind: str,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    if kind == "bytes":
        inputs = max(32, inputs // 32 * 32)
        weight = quantised(outputs * (2 if around == "gate" else 1), inputs, "Q4_1", seed)
    else:
        weight = torch.randn(outputs * (2 if around == "gate" else 1), inputs).to(getattr(torch, kind))
    x = torch.randn(rows, inputs)
    bias = torch.randn(len(weight)) if has_bias else None
    residual = torch.randn(rows, outputs) if has_residual else None
    norm = (torch.rand(inputs) + 0.5, 1e-5) if around == "norm" else None
    packed = pack_weight(weight, bias, gated=around == "gate")

    def product(part: slice) -> Tensor:
        return packed_linear(
            x[part],
            packed,
            norm=norm,
            residual=None if residual is None else residual[part],
        )

    have = product(slice(None))
    prepared = x.double()
    if norm is not None:
        prepared = F.rms_norm(prepared, (inputs,), norm[0].double(), norm[1])
    if packed.kept == PAIRS:
        prepared = prepared.float().bfloat16().double()
    want = F.linear(prepared, weight.double(), None if bias is None else bias.double())
    if around == "gate":
        want = F.silu(want[:, :outputs]) * want[:, outputs:]
    want = want if residual is None else want + residual.double()
    # A norm that is a last bit apart may be rounded to another bfloat16.
    within = 0.05 if packed.kept == PAIRS and norm else 2e-5
    torch.testing.assert_close(
        have.double(), want, rtol=within, atol=within * max(1, want.abs().max().item())
    )
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(product(slice(row, row + 1)), have[row : row + 1])


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", ["Q4_1", "float32", "bfloat16"])
def test_however_many_rows_and_threads_each_row_is_as_alone_and_nothing_is_written_beyond(
    name: str, gated: bool, workers: int
) -> None:
    """The micro-kernel writes whole heights: none may reach into another thread's rows, or beyond out."""
    outputs, inputs, most = 40, 32, 420
    weight = quantised(outputs, inputs, "Q4_1") if name == "Q4_1" else torch.randn(outputs, inputs)
    packed = pack_weight(weight.bfloat16() if name == "bfloat16" else weight, gated=gated)
    outputs = packed.outputs
    x, nothing, no_rows = (
        torch.randn(most, inputs).numpy(),
        np.empty(0, np.float32),
        np.empty((0, 0), np.float32),
    )
    alone = np.concatenate(
        [packed_linear(torch.from_numpy(x[t : t + 1]), packed).numpy() for t in range(most)]
    )
    for rows in range(1, most):
        padded = -(-rows // ROWS) * ROWS
        memory = np.full((padded + 2 * ROWS, outputs), 7, np.float32)
        linear_loops(
            *(
                workers,
                x[:rows],
                nothing,
                0.0,
                packed.panels,
                packed.kept,
                inputs if packed.kept != PAIRS else inputs // 2,
                gated,
                nothing,
                no_rows,
            ),
            memory[:padded],
        )
        assert np.array_equal(memory[:rows], alone[:rows]), rows
        assert np.all(memory[padded:] == 7), rows


def test_a_wrong_width_is_named() -> None:
    with pytest.raises(ValueError, match="x: got 5 columns, expected 6"):
        packed_linear(torch.zeros(1, 5), pack_weight(torch.zeros(2, 6)))


def test_memory_in_large_pages_is_zero_apart_and_at_the_beginning_of_a_line() -> None:
    parts = [zeros((3, 5), torch.float32), zeros((7,), torch.uint8), zeros((40 << 20,), torch.uint8)]
    for number, part in enumerate(parts, start=1):
        assert part.data_ptr() % 64 == 0
        assert not part.any()
        part.fill_(number)
    assert [int(part.min()) for part in parts] == [int(part.max()) for part in parts] == [1, 2, 3]
