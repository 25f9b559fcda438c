"""docs/speed.svg: a bar a system, a panel a workload. Reads well on a light page and on a dark one.

Text is a grey that both backgrounds carry, and the background is left out. Needs matplotlib, an extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.speed.results import Entry, Results
from benchmarks.speed.systems import DEFAULT, SYSTEMS
from benchmarks.speed.workloads import WORKLOADS
from tinycb.view.load_plots import PlotError, check_matplotlib

__all__ = ["draw"]

_INK = "#808080"
_COLOURS = {"tinycb": "#2c8a57", "transformers": "#c2762e", "vllm": "#3d7fc4"}
_STYLE: Any = {
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.bottom": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tinycb",
    "figure.constrained_layout.use": True,
}


def draw(results: Results, path: Path) -> bool:
    """Draw the figure; False where there is nothing to draw, or nothing to draw with."""
    dtypes = [d for d in ("float32", "bfloat16") if any(entry.dtype == d for entry in results.entries)]
    try:
        check_matplotlib()
    except PlotError as error:
        print(error)
        return path.exists()
    if not dtypes:
        return False
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in WORKLOADS if any(entry.workload == name for entry in results.entries)]
    there = {(entry.dtype, entry.system) for entry in results.entries}
    systems = {dtype: [s for s in SYSTEMS.values() if (dtype, s.name) in there] for dtype in dtypes}
    heights = [0.28 * len(systems[dtype]) + 0.4 for dtype in dtypes]
    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(
            *(len(dtypes), len(names)),
            figsize=(2.2 + 2.4 * len(names), 0.6 + sum(heights)),
            height_ratios=heights,
            squeeze=False,
            sharey="row",
        )
        for dtype, row in zip(dtypes, grid, strict=True):
            for name, axes in zip(names, row, strict=True):
                _panel(axes, [results.find(name, dtype, system.name) for system in systems[dtype]])
                axes.set_title(f"{name}, {'fp32' if dtype == 'float32' else 'bf16'}", loc="left", fontsize=9)
            row[0].set_yticks(range(len(systems[dtype])), [system.title for system in systems[dtype]])
            row[0].invert_yaxis()
        figure.supxlabel("output tokens a second", fontsize=9)
        try:
            figure.savefig(path, transparent=True, metadata={"Date": None})
        finally:
            plt.close(figure)
    return True


def _panel(axes: Any, entries: list[Entry | None]) -> None:
    most = max((entry.speed for entry in entries if entry is not None), default=1.0)
    for place, entry in enumerate(entries):
        if entry is None:
            continue
        own = entry.system == DEFAULT
        colour = _COLOURS[SYSTEMS[entry.system].family]
        axes.barh(place, entry.speed, 0.72, color=colour, alpha=1.0 if own else 0.7)
        axes.plot(entry.speeds, [place] * len(entry.speeds), "|", color=_INK, markersize=5)
        weight = "bold" if own else "normal"
        label = f"{entry.speed:.{0 if entry.speed >= 100 else 1}f}"
        axes.text(max(entry.speeds) + 0.03 * most, place, label, va="center", fontsize=8, fontweight=weight)
    axes.set_xlim(0, 1.25 * most)
    axes.set_xticks([])
    axes.tick_params(length=0)
