"""Modelled beside measured, step by step and in sum: how far off the model of this machine is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from tinycb.load_report import Interference
from tinycb.view.results import seconds

__all__ = ["StepPair", "error_json", "error_table", "interference_table"]


@dataclass(frozen=True, slots=True)
class StepPair:
    """One forward. rows: requests; tokens: that went through it. Seconds, measured and modelled."""

    rows: int
    tokens: int
    measured: float
    modelled: float

    @property
    def is_decode(self) -> bool:
        return self.tokens == self.rows

    @property
    def error(self) -> float:
        """Modelled over measured, less one: negative where the model is too fast."""
        return self.modelled / self.measured - 1


_KINDS: tuple[tuple[str, Callable[[StepPair], bool]], ...] = (
    ("decode only", lambda pair: pair.is_decode),
    ("with a prompt", lambda pair: not pair.is_decode),
    ("all", lambda pair: True),
)


def error_table(pairs: Sequence[StepPair]) -> Table:
    """A line for steps that only decode, one for the others, one for all."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("steps")
    for title in ("count", "measured", "modelled", "in sum", "a step, median", "worst"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, wanted in _KINDS:
        values = _errors([pair for pair in pairs if wanted(pair)])
        if values:
            table.add_row(
                name,
                f"{values['count']:,}",
                seconds(values["measured"]),
                seconds(values["modelled"]),
                _signed(values["sum_error"]),
                f"±{100 * values['median_error']:.0f} %",
                _signed(values["worst_error"]),
            )
    return table


def error_json(pairs: Sequence[StepPair]) -> dict[str, Any]:
    """The same figures by kind of step."""
    return {name: _errors([pair for pair in pairs if wanted(pair)]) for name, wanted in _KINDS}


def interference_table(runs: Sequence[Interference], kind: str) -> Table:
    """A line a policy. kind: "measured" or "modelled"."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"policy, budget; {kind}")
    for title in ("forwards", "gap before", "worst gap", "", "TTFT of the prompt", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            run.name,
            str(run.chunks),
            seconds(run.before),
            seconds(run.worst),
            f"{run.slowdown:.1f} ×",
            seconds(run.ttft),
            f"{run.ttft / runs[0].ttft:.2f} ×",
        )
    return table


def _errors(pairs: Sequence[StepPair]) -> dict[str, Any]:
    if not pairs:
        return {}
    measured, modelled = sum(p.measured for p in pairs), sum(p.modelled for p in pairs)
    return {
        "count": len(pairs),
        "measured": measured,
        "modelled": modelled,
        "sum_error": modelled / measured - 1,
        "median_error": median(abs(pair.error) for pair in pairs),
        "worst_error": max((pair.error for pair in pairs), key=abs),
    }


def _signed(error: float) -> str:
    return f"{100 * error:+.0f} %"
