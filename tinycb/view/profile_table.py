"""Where a step's time went: a line a part, and how far the run is from its matrix products alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from tinycb.profiling import Profile

__all__ = ["distance", "profile_table"]


def profile_table(found: Profile) -> Table:
    """Milliseconds of the mean step, and the share of it."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), show_footer=True
    )
    step = 1000 / max(1, found.steps)
    table.add_column("the mean step", footer="all of it")
    table.add_column("ms", justify="right", no_wrap=True, footer=f"{step * found.seconds:.2f}")
    table.add_column("share", justify="right", no_wrap=True, footer="100.0 %")
    for name, seconds in found.parts.items():
        table.add_row(name, f"{step * seconds:.2f}", f"{100 * seconds / found.seconds:.1f} %")
    return table


def distance(found: Profile) -> str:
    """In a sentence."""
    speed = found.output_tokens / found.seconds
    if not found.floor:
        return f"{speed:,.1f} output tokens/s."
    allowed, times = found.output_tokens / found.floor, found.seconds / found.floor
    return (
        f"{speed:,.1f} output tokens/s; the matrix products alone would allow {allowed:,.1f}. "
        f"A step takes {times:.2f} times as long as they do."
    )
