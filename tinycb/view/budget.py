"""The memory budget and the roofline as tables. Bytes and counts are exact; seconds are *modelled*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tinycb.costs.roofline import CostModel
from tinycb.memory import MemoryBudget, block_size_cost
from tinycb.view.results import seconds

__all__ = ["amount", "blocks_table", "budget_lines", "fit_table", "roofline_lines", "roofline_table"]

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)


def amount(count: int) -> str:
    """Bytes with their unit.

    >>> amount(131072), amount(16_060_522_496)
    ('128.0 KiB', '14.96 GiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.{2 if unit == 'GiB' else 1}f} {unit}"
    return f"{count} B"


def budget_lines(budget: MemoryBudget, name: str, dtype: str, sizes: tuple[int, int, int]) -> list[Text]:
    """The arithmetic, a line a quantity. sizes: L, KH, D."""
    layers, heads, dim = sizes
    width = budget.token_bytes // (2 * layers * heads * dim)
    rows = (
        ("memory M", f"{budget.memory:,} B", amount(budget.memory)),
        ("weights W", f"{budget.weights:,} B", f"{amount(budget.weights)} in {dtype}"),
        (
            "a token's K and V, k",
            f"{budget.token_bytes:,} B",
            f"2 · L {layers} · KH {heads} · D {dim} · {width} bytes",
        ),
        ("N_max = (M - W) / k", f"{budget.max_tokens:,} tokens", "of all requests together"),
        ("blocks", f"{budget.num_blocks:,}", f"of {budget.block_size} tokens"),
    )
    lines = [Text(f"{name}, exact", style="bold")]
    return lines + [Text(f"  {label:<22}{number:>22}   {note}") for label, number, note in rows]


def fit_table(budget: MemoryBudget, longest: int, max_num_seqs: int | None) -> Table:
    """Requests that fit at once, by how long each is."""
    table = _table("tokens a request", "its cache", "requests that fit")
    if max_num_seqs is not None:
        table.add_column(f"run, of {max_num_seqs}", justify="right", no_wrap=True)
    for length in sorted({n for n in LENGTHS if n < longest} | {longest}):
        fit = budget.requests_of(length)
        cells = [f"{length:,}", amount(length * budget.token_bytes), f"{fit:,}"]
        if max_num_seqs is not None:
            cells.append(f"{min(fit, max_num_seqs):,}")
        table.add_row(*cells)
    return table


def blocks_table(budget: MemoryBudget, length: int) -> Table:
    """What each block size loses in last blocks, beside what its block table takes, at one length."""
    table = _table("block size", "blocks", "slack", "mean slack", "of the cache", "block table")
    for cost in block_size_cost(length, sorted({1, 8, 16, 32, 256, budget.block_size})):
        mean = amount(round(cost.mean_slack * budget.token_bytes))
        table.add_row(
            str(cost.block_size),
            f"{cost.blocks:,}",
            f"{cost.slack_tokens:,} tokens",
            mean,
            f"{100 * cost.mean_slack / (length + cost.mean_slack):.2f} %",
            amount(cost.table_bytes),
        )
    return table


def roofline_lines(cost: CostModel) -> list[Text]:
    """The device, where its figures come from, and where bytes and operations meet."""
    device, balanced = cost.device, cost.balanced_rows()
    meet = f"from {balanced:,} rows on" if balanced else "never: a row's activations take longer to move"
    return [
        Text(f"a step on {device.name}, modelled", style="bold"),
        Text(
            f"  {device.bandwidth / 1e9:,.0f} GB/s, {device.flops_of(cost.dtype) / 1e12:,.4g} TFLOPS in "
            f"{cost.dtype}; source: {device.source}"
        ),
        Text(f"  {cost.ridge:.0f} operations a byte are the ridge; operations bind matrix products {meet}"),
    ]


def roofline_table(cost: CostModel, context: int, decodes: Sequence[int], chunks: Sequence[int]) -> Table:
    """Bytes and operations of some steps, exact, and the floor of their time, modelled."""
    table = _table("step", "weights", "KV", "activations", "operations", "floor", "bound by")
    for label, rows in _steps(context, decodes, chunks):
        work = cost.work(rows)
        floor = cost.floor(work)
        table.add_row(
            label,
            amount(work.weight_bytes),
            amount(work.kv_bytes),
            amount(work.activation_bytes),
            f"{work.ops / 1e9:,.1f} G",
            seconds(floor.seconds),
            floor.bound,
        )
    return table


def _steps(
    context: int, decodes: Sequence[int], chunks: Sequence[int]
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    for rows in decodes:
        yield f"{rows:,} decode{'s' * (rows != 1)} at {context:,}", [(1, context)] * rows
    for tokens in chunks:
        yield f"a prompt of {tokens:,}", [(tokens, tokens)]


def _table(first: str, *others: str) -> Table:
    layout: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False}
    table = Table(padding=(0, 1, 0, 0), **layout)
    table.add_column(first, justify="right" if first != "step" else "left", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
