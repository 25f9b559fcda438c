"""Figures of a load, as SVG and PNG: the course of a run, latency against rate, gaps between tokens.

Drawn by matplotlib, which is an extra: `pip install 'tinycb[plot]'`. Every axis of seconds says whether they
are modelled or measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tinycb.load_report import LoadReport

__all__ = ["PlotError", "check_matplotlib", "draw_course", "draw_gaps", "draw_sweep"]

_COLOURS = {"static": "#b1462f", "continuous": "#2f6db1", "chunked": "#2c8a57"}
SHOWN_POINTS = 500  # of a course; more are narrower than a pixel
_MORE = ("#8a5a00", "#7a3fa0", "#4d4d4d", "#00808a")
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "tinycb",  # the same run gives the same file
    "figure.constrained_layout.use": True,
}


class PlotError(RuntimeError):
    """A figure that cannot be drawn or written, in one line."""


def check_matplotlib() -> None:
    """Raise PlotError now, and not after the work is done, if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotError("figures need matplotlib: pip install 'tinycb[plot]'") from None


def draw_course(reports: Sequence[LoadReport], path: str | Path, title: str, kind: str) -> list[Path]:
    """Batch fill and KV use over time, a row a policy. Returns the two files."""
    plt = _pyplot()
    with plt.rc_context(_STYLE):
        size = (9, 1.6 + 1.7 * len(reports))
        figure, grid = plt.subplots(len(reports), 2, figsize=size, squeeze=False, sharex="col")
        for index, (report, axes) in enumerate(zip(reports, grid, strict=True)):
            points, colour = report.course.coarse(SHOWN_POINTS), _colour(report.policy, index)
            edges = [point.start for point in points] + [point.end for point in points[-1:]]
            rows, held = [p.rows for p in points], [p.running for p in points]
            blocks = [100 * p.blocks / report.num_blocks for p in points]
            fill, cache = axes
            if edges:
                fill.stairs(held, edges, color=colour, alpha=0.25, fill=True, label="slots held")
                fill.stairs(rows, edges, color=colour, label="rows that advance")
                cache.stairs(blocks, edges, color=colour, fill=True, alpha=0.6)
            fill.axhline(report.max_num_seqs, color="0.6", linewidth=0.8, linestyle=":")
            fill.set_ylim(0, max([*held, 1]) * (1.35 if index == 0 else 1.1))
            fill.set_ylabel(f"{report.policy}\nrequests")
            cache.set_ylabel("KV cache, % of blocks")
            cache.set_ylim(bottom=0)
        grid[0][0].legend(loc="upper right", fontsize=7)
        grid[0][0].set_title("batch", loc="left")
        grid[0][1].set_title("KV cache", loc="left")
        for axes in grid[-1]:
            axes.set_xlabel(f"{kind} time, s")
        figure.suptitle(title, fontsize=10)
        return _save(plt, figure, path)


def draw_sweep(
    points: Sequence[tuple[float, LoadReport]], path: str | Path, title: str, kind: str
) -> list[Path]:
    """Latency against offered rate, a line a policy. Returns the two files."""
    plt = _pyplot()
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.4))
        policies = list(dict.fromkeys(report.policy for _, report in points))
        for index, policy in enumerate(policies):
            mine = [(rate, report) for rate, report in points if report.policy == policy]
            rates, colour = [rate for rate, _ in mine], _colour(policy, index)
            for axis, name in ((axes[0], "ttft"), (axes[1], "tpot")):
                for percentile, style in (("p50", ":"), ("p95", "-")):
                    values = [getattr(getattr(r.totals, name), percentile) or float("nan") for _, r in mine]
                    label = f"{policy} {percentile}"
                    axis.plot(rates, values, style, color=colour, marker=".", label=label)
            axes[2].plot(rates, [r.totals.tokens_per_second for _, r in mine], color=colour, marker=".")
        for axis, name in zip(axes, ("TTFT, s", "TPOT, s", "output tokens/s"), strict=True):
            axis.set_title(f"{name} ({kind})", loc="left")
            axis.set_xlabel("offered requests/s")
        axes[0].set_yscale("log")
        axes[1].set_yscale("log")
        axes[2].set_ylim(bottom=0)
        axes[0].legend(fontsize=7)
        figure.suptitle(title, fontsize=10)
        return _save(plt, figure, path)


def draw_gaps(
    runs: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], path: str | Path, title: str, kind: str
) -> list[Path]:
    """Each request's gaps between tokens, as bars over the time they took, a panel a run.

    runs: name → request → (moment, gap). Returns the two files.
    """
    plt = _pyplot()
    with plt.rc_context(_STYLE):
        size = (9, 1.2 + 1.6 * len(runs))
        figure, grid = plt.subplots(len(runs), 1, figsize=size, squeeze=False, sharex=True, sharey=True)
        for index, ((name, requests), axis) in enumerate(zip(runs.items(), grid[:, 0], strict=True)):
            for gaps in requests.values():
                ends, starts = [t for t, _ in gaps], [t - gap for t, gap in gaps]
                values, colour = [1000 * gap for _, gap in gaps], _colour(name.split(",")[0], index)
                axis.hlines(values, starts, ends, color=colour, alpha=0.6, linewidth=1.2)
                axis.plot(ends, values, ".", color=colour, alpha=0.6, markersize=3)
            axis.set_title(name, loc="left", fontsize=9)
            axis.set_ylabel("gap, ms")
            axis.set_yscale("log")
        grid[-1][0].set_xlabel(f"{kind} time, s")
        figure.suptitle(title, fontsize=10)
        return _save(plt, figure, path)


def _pyplot() -> Any:
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _colour(policy: str, index: int) -> str:
    return _COLOURS.get(policy, _MORE[index % len(_MORE)])


def _save(plt: Any, figure: Any, path: str | Path) -> list[Path]:
    base = Path(path)
    base = base.with_suffix("") if base.suffix in (".svg", ".png") else base
    files = [base.with_name(base.name + suffix) for suffix in (".svg", ".png")]
    try:
        for file in files:
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=150, metadata=metadata)
    except OSError as error:
        raise PlotError(f"cannot write {base}.svg: {error.strerror or error}") from None
    finally:
        plt.close(figure)
    return files
