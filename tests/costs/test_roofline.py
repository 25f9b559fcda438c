"""The roofline: by hand, against naive sums, and what must hold of every step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycb.costs.devices import DEVICES, find_device, measured_file, save_measured
from tinycb.costs.roofline import CostModel
from tinycb.costs.shapes import load_shape
from tinycb.memory import num_parameters

LLAMA = load_shape("llama-3-8b")
H100 = CostModel(LLAMA, DEVICES["h100"])
ROWS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(0, 3000)).map(lambda row: (row[0], row[0] + row[1])),
    min_size=1,
    max_size=12,
)


def test_one_decode_reads_every_weight_and_all_its_cache_once() -> None:
    work = H100.work([(1, 1000)])
    table, norms = LLAMA.vocab_size * 4096, (2 * 32 + 1) * 4096
    assert work.weight_bytes == 2 * (num_parameters(LLAMA) - table - norms)
    assert work.kv_bytes == 131_072 * (1000 + 1)
    assert work.product_ops == work.weight_bytes  # two operations a weight of two bytes
    assert work.attention_ops == 4 * 32 * 128 * 32 * 1000


@given(rows=ROWS, kept=st.floats(0.5, 4))
def test_weights_that_are_kept_smaller_move_fewer_bytes_and_cost_nothing_else(rows, kept: float) -> None:
    small = CostModel(LLAMA, DEVICES["h100"], bytes_per_weight=kept)
    plain, smaller = H100.work(rows), small.work(rows)
    assert smaller.weight_bytes == pytest.approx(plain.weight_bytes * kept / 2)
    assert replace(smaller, weight_bytes=plain.weight_bytes) == plain


@given(rows=ROWS)
def test_pairs_are_those_of_the_causal_mask(rows: list[tuple[int, int]]) -> None:
    pairs = sum(seq_len - q_len + i + 1 for q_len, seq_len in rows for i in range(q_len))
    assert H100.work(rows).attention_ops == 4 * 32 * 128 * 32 * pairs


@given(rows=ROWS, more=ROWS)
def test_a_batch_costs_its_rows_except_that_weights_are_read_once(rows, more) -> None:
    apart, together = H100.work(rows) + H100.work(more), H100.work(rows + more)
    assert replace(apart, weight_bytes=apart.weight_bytes // 2) == together
    separately = H100.floor(H100.work(rows)).seconds + H100.floor(H100.work(more)).seconds
    assert H100.floor(together).seconds <= separately * (1 + 1e-12)


@given(rows=ROWS, pad=st.integers(0, 500))
def test_padding_is_paid_for_in_products_and_not_in_attention(rows, pad: int) -> None:
    plain, padded = H100.work(rows), H100.work(rows, num_padded=pad)
    assert padded.attention_ops == plain.attention_ops
    assert padded.kv_bytes == plain.kv_bytes
    assert padded.product_ops - plain.product_ops == 2 * (H100._layer_bytes // 2) * pad


@given(rows=ROWS, efficiency=st.floats(0.05, 1))
def test_a_lower_efficiency_takes_longer_in_proportion(rows, efficiency: float) -> None:
    slower = CostModel(LLAMA, DEVICES["h100"], efficiency=efficiency)
    floor = H100.floor(H100.work(rows)).seconds
    assert slower.floor(slower.work(rows)).seconds == pytest.approx(floor / efficiency)


def test_bytes_bind_decode_and_operations_a_long_prompt() -> None:
    assert H100.floor(H100.work([(1, 500)] * 16)).bound == "bytes"
    assert H100.floor(H100.work([(4096, 4096)])).bound == "operations"


@pytest.mark.parametrize("name", DEVICES)
def test_the_two_meet_where_it_says(name: str) -> None:
    cost = CostModel(LLAMA, DEVICES[name])
    rows = cost.balanced_rows()
    assert rows is not None
    assert rows > cost.ridge  # activations move too
    for count, binds in ((rows - 1, "bytes"), (rows, "operations")):
        floor = cost.floor(cost.work([(1, 1)] * count))
        assert ("operations" if floor.product_ops >= floor.product_bytes else "bytes") == binds


def test_where_a_row_moves_longer_than_it_computes_operations_never_bind() -> None:
    lame = replace(DEVICES["h100"], bandwidth=1e9)
    assert CostModel(LLAMA, lame).balanced_rows() is None


@pytest.mark.parametrize("name", DEVICES)
def test_every_figure_has_its_source(name: str) -> None:
    assert "data sheet" in DEVICES[name].source


def test_what_was_measured_is_found_again(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="doctor --measure"):
        find_device("cpu")
    mine = replace(DEVICES["h100"], name="cpu", flops={"float32": 1e11}, layer_overhead=0.001)
    save_measured(mine)
    assert find_device("cpu") == mine
    with pytest.raises(ValueError, match="no figure for bfloat16"):
        CostModel(LLAMA, mine)
    for broken in ("{", "[]", "{}", '{"flops": {"float32": -1}}'):
        measured_file().write_text(broken)
        with pytest.raises(ValueError, match="is broken"):
            find_device("cpu")


def test_an_unknown_device_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no device 'tpu'; there are a100, h100, h200, cpu"):
        find_device("tpu")
