"""The same prompts under several policies, side by side, and what the numbers say in words.

Nothing here is known beforehand: each sentence is chosen by the figures it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from tinycb.tracing.metrics import Totals
from tinycb.view.results import seconds

__all__ = ["PolicyResult", "comparison_table", "findings", "first_difference"]

CLOSE = 0.95  # a difference of less than a twentieth is noise


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy's run. token_ids: by request. most_rows: of any forward. longest_gap: between two tokens."""

    name: str
    totals: Totals
    token_ids: Mapping[str, Sequence[int]]
    most_rows: int
    longest_gap: float | None

    @property
    def mean_rows(self) -> float:
        """Rows of the matrix that every weight is multiplied with, padding included."""
        return self.totals.forward_tokens / max(1, self.totals.forwards)

    @property
    def speed(self) -> float:
        return self.totals.tokens_per_second


def comparison_table(results: Sequence[PolicyResult]) -> Table:
    """A column a policy, a line a quantity; fits 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(result.name, justify="right", no_wrap=True)
    best = max(result.speed for result in results)

    def row(label: str, cells: Sequence[str], style: str = "") -> None:
        table.add_row(Text(label, style=style), *(Text(cell, style=style) for cell in cells))

    row("steps", [str(r.totals.steps) for r in results])
    row("rows per matrix product, mean", [f"{r.mean_rows:.1f}" for r in results])
    row("                         most", [str(r.most_rows) for r in results])
    row("forward tokens", [str(r.totals.forward_tokens) for r in results])
    row("  of them padding", [str(r.totals.waste.padded_tokens) for r in results])
    row("idle slots, summed over steps", [str(r.totals.waste.idle_slots) for r in results])
    row("preemptions", [str(r.totals.num_preemptions) for r in results])
    row("mean TTFT", [seconds(r.totals.ttft.mean) for r in results])
    row("mean TPOT", [seconds(r.totals.tpot.mean) for r in results])
    row("longest gap between two tokens", [seconds(r.longest_gap) for r in results])
    row("time", [f"{r.totals.duration:.2f} s" for r in results])
    marks = ["*" if r.speed == best and len(results) > 1 else " " for r in results]
    row("output tokens/s", [f"{mark}{r.speed:.1f}" for mark, r in zip(marks, results, strict=True)], "bold")
    return table


def first_difference(results: Sequence[PolicyResult]) -> str | None:
    """Where a policy's tokens part from the first policy's; None if all are the same."""
    first, *others = results
    for other in others:
        for name, expected in first.token_ids.items():
            got = other.token_ids.get(name, ())
            if list(got) == list(expected):
                continue
            pairs = enumerate(zip(got, expected, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(expected)))
            return f"request {name} differs at output token {at} between {first.name} and {other.name}"
    return None


def findings(results: Sequence[PolicyResult]) -> list[str]:
    """What the table shows, in a few sentences."""
    by_name = {result.name: result for result in results}
    fastest, slowest = max(results, key=lambda r: r.speed), min(results, key=lambda r: r.speed)
    sentences = []
    if slowest.speed > 0 and slowest.speed < CLOSE * fastest.speed:
        first = [r.name for r in results if r.speed >= CLOSE * fastest.speed]
        what = f"{first[0]} is the fastest" if len(first) == 1 else f"{' and '.join(first)} are the fastest"
        ratio = fastest.speed / slowest.speed
        sentences.append(f"{what[:1].upper()}{what[1:]} here, {ratio:.1f} times {slowest.name}.")
    wasteful = max(results, key=lambda r: r.totals.waste.padded_tokens)
    if padded := wasteful.totals.waste.padded_tokens:
        share = 100 * padded / wasteful.totals.forward_tokens
        sentences.append(
            f"{share:.0f} % of the tokens that {wasteful.name} ran are padding: rows filled up to the "
            f"longest, and {wasteful.totals.waste.idle_slots} rows of requests that were done."
        )
    if (one := by_name.get("one at a time")) is not None and one is not fastest:
        sentences.append(
            f"Each forward reads all weights once: for {fastest.mean_rows:.1f} rows with {fastest.name}, "
            f"for {one.mean_rows:.1f} one at a time."
        )
    return sentences + _chunking(by_name)


def _chunking(by_name: Mapping[str, PolicyResult]) -> list[str]:
    """Chunks bound a step's work: whether that shortened the longest wait between two tokens."""
    whole, chunked = by_name.get("continuous"), by_name.get("chunked")
    if whole is None or chunked is None or not whole.longest_gap or not chunked.longest_gap:
        return []
    if chunked.most_rows >= whole.most_rows:
        same = whole.totals.steps == chunked.totals.steps
        return ["Nothing outgrew the budget, so continuous and chunked ran the same steps."] if same else []
    became = "falls" if chunked.longest_gap < CLOSE * whole.longest_gap else "does not fall"
    return [
        f"With at most {chunked.most_rows} rows in a forward, not {whole.most_rows}, the longest gap between "
        f"two tokens {became}: {seconds(whole.longest_gap)} continuous, "
        f"{seconds(chunked.longest_gap)} chunked."
    ]
