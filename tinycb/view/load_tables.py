"""What a workload came to, as tables: exact counts apart from seconds, a column a policy.

The seconds are *modelled* or *measured*; whoever calls knows which, and the table says it. Next:
`load_plots.py` for the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tinycb.load_report import LoadReport
from tinycb.tracing.summary import Summary
from tinycb.view.results import seconds
from tinycb.workloads.traffic import Workload

__all__ = ["exact_table", "report_json", "seconds_table", "sweep_table", "workload_line"]

_LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("end to end", "e2el"))
_PERCENTILES = ("p50", "p95", "p99")


def workload_line(workload: Workload) -> str:
    """The workload in one line."""
    arrivals = workload.arrivals
    prompt = sum(arrival.prompt_tokens for arrival in arrivals) / len(arrivals)
    output = sum(arrival.output_tokens for arrival in arrivals) / len(arrivals)
    rate = f"{workload.rate:.3g} requests/s" if workload.rate else "all at once"
    return (
        f"{workload.name}: {len(arrivals):,} requests, {rate}, on average {prompt:,.0f} prompt and "
        f"{output:,.0f} output tokens"
    )


def exact_table(reports: Sequence[LoadReport]) -> Table:
    """Steps, tokens, slots and blocks: the same on every machine for the same arrivals and step times."""
    table = _table("exact", reports)

    def row(label: str, cell: Callable[[LoadReport], str]) -> None:
        table.add_row(Text(label), *(cell(report) for report in reports))

    row("requests answered", lambda r: f"{r.totals.returned:,}")
    if any(r.problems or r.cut for r in reports):
        row("  refused", lambda r: f"{r.totals.refused:,}")
        row("  cut short at the longest length", lambda r: f"{r.cut:,}")
    row("steps", lambda r: f"{r.totals.forwards:,}")
    row("output tokens", lambda r: f"{r.totals.num_output_tokens:,}")
    row("slot use: rows that advance, of slots held", lambda r: _percent(r.slot_use))
    row("batch fill: rows that advance, of all slots", lambda r: _percent(r.batch_fill))
    row("forward tokens", lambda r: f"{r.totals.forward_tokens:,}")
    row("  of them padding", lambda r: f"{r.totals.waste.padded_tokens:,} ({_percent(r.padding)})")
    row("  recomputed after a preemption", lambda r: f"{r.totals.waste.recomputed_tokens:,}")
    row("  most in one forward", lambda r: f"{r.most_tokens:,}")
    row("preemptions", lambda r: f"{r.totals.num_preemptions:,}")
    row("prefix hits, tokens", lambda r: f"{r.totals.prefix_hit_tokens:,}")
    row("blocks in use at the most", lambda r: f"{r.peak_blocks:,} of {r.num_blocks:,}")
    row("TTFT in steps, p50 / p95 / p99", lambda r: _three(r.totals.ttft_steps, "{:,.0f}".format))
    return table


def seconds_table(reports: Sequence[LoadReport], kind: str, slo: Mapping[str, float] | None) -> Table:
    """Latencies and rates. kind: "modelled" or "measured"."""
    table = _table(kind, reports)

    def row(label: str, cell: Callable[[LoadReport], str], style: str = "") -> None:
        table.add_row(Text(label, style=style), *(Text(cell(report), style=style) for report in reports))

    for title, name in _LATENCIES:
        for percentile in _PERCENTILES:
            label = f"{title:<10} {percentile}" if percentile == "p50" else f"{'':<10} {percentile}"
            row(label, lambda r, n=name, p=percentile: seconds(getattr(getattr(r.totals, n), p)))  # type: ignore[misc]
    row("longest gap between two tokens", lambda r: seconds(r.longest_gap))
    row("KV cache in use while steps run", lambda r: _percent(r.kv_use))
    row("from first to last step", lambda r: f"{r.totals.duration:,.1f} s")
    row("output tokens/s", lambda r: f"{r.totals.tokens_per_second:,.1f}", "bold")
    if slo is not None:
        levels = ", ".join(f"{name.upper()} ≤ {seconds(most)}" for name, most in slo.items())
        row(f"goodput: {levels}", lambda r: f"{r.goodput or 0:.2f} requests/s")
    return table


def sweep_table(points: Sequence[tuple[float, LoadReport]], kind: str) -> Table:
    """A line a rate and policy."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("requests/s", justify="right")
    table.add_column("policy")
    titles = ("steps", "TTFT p50", "p95", "TPOT p50", "p95", "tokens/s")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    if any(report.goodput is not None for _, report in points):
        table.add_column("goodput", justify="right", no_wrap=True)
    table.title, table.title_justify = f"steps exact, all else {kind}", "left"
    for rate, report in points:
        totals = report.totals
        cells = [f"{rate:g}", report.policy, f"{totals.forwards:,}"]
        cells += [seconds(totals.ttft.p50), seconds(totals.ttft.p95)]
        cells += [seconds(totals.tpot.p50), seconds(totals.tpot.p95), f"{totals.tokens_per_second:,.0f}"]
        if report.goodput is not None:
            cells.append(f"{report.goodput:.2f}")
        table.add_row(*cells)
    return table


def report_json(report: LoadReport, kind: str) -> dict[str, Any]:
    """One report as `--json` prints it: `exact`, and the seconds under the name of their kind."""
    totals = report.totals
    exact: dict[str, Any] = {
        "steps": totals.forwards,
        "arrived": totals.arrived,
        "answered": totals.returned,
        "refused": totals.refused,
        "cut": report.cut,
        "output_tokens": totals.num_output_tokens,
        "forward_tokens": totals.forward_tokens,
        "padded_tokens": totals.waste.padded_tokens,
        "recomputed_tokens": totals.waste.recomputed_tokens,
        "idle_slots": totals.waste.idle_slots,
        "preemptions": totals.num_preemptions,
        "prefix_hit_tokens": totals.prefix_hit_tokens,
        "slot_use": report.slot_use,
        "batch_fill": report.batch_fill,
        "max_num_seqs": report.max_num_seqs,
        "num_blocks": report.num_blocks,
        "peak_blocks": report.peak_blocks,
        "ttft_steps": _percentiles(totals.ttft_steps),
        "e2el_steps": _percentiles(totals.e2el_steps),
    }
    times: dict[str, Any] = {name: _percentiles(getattr(totals, name)) for _, name in _LATENCIES}
    times |= {
        "duration": totals.duration,
        "tokens_per_second": totals.tokens_per_second,
        "goodput": report.goodput,
        "longest_gap": report.longest_gap,
        "kv_use": report.kv_use,
    }
    return {"policy": report.policy, "exact": exact, kind: times, "interrupted": report.interrupted}


def _percentiles(summary: Summary) -> dict[str, float | None]:
    return {"mean": summary.mean} | {name: getattr(summary, name) for name in _PERCENTILES}


def _three(summary: Summary, show: Callable[[float], str]) -> str:
    values = [getattr(summary, name) for name in _PERCENTILES]
    return " / ".join("-" if value is None else show(value) for value in values)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _table(title: str, reports: Sequence[LoadReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(title, no_wrap=True)
    for report in reports:
        table.add_column(report.policy, justify="right", no_wrap=True)
    return table
