"""What runs can be compared by: a label, and how it is read off a run's totals.

A chapter names only what has been explained by then.
"""

from __future__ import annotations

from collections.abc import Callable

from tinycb.view.comparison import PolicyResult
from tinycb.view.results import seconds

__all__ = ["MEASURES", "PLAIN"]

MEASURES: dict[str, tuple[str, Callable[[PolicyResult], str]]] = {
    "forwards": ("forwards", lambda run: str(run.totals.forwards)),
    "rows": ("rows that they computed", lambda run: str(run.totals.forward_tokens)),
    "padding": ("  of them for nobody", lambda run: str(run.totals.waste.padded_tokens)),
    "idle": ("idle slots, summed over steps", lambda run: str(run.totals.waste.idle_slots)),
    "most": ("rows of the largest forward", lambda run: str(run.most_rows)),
    "mean": ("rows of a forward, mean", lambda run: f"{run.mean_rows:.1f}"),
    "preemptions": ("preemptions", lambda run: str(run.totals.num_preemptions)),
    "recomputed": ("tokens computed again", lambda run: str(run.totals.waste.recomputed_tokens)),
    "hits": ("tokens found in the prefix cache", lambda run: str(run.totals.prefix_hit_tokens)),
    "slack": ("unused places in last blocks", lambda run: str(run.totals.waste.slack_in_last_blocks)),
    "ttft": ("mean TTFT", lambda run: seconds(run.totals.ttft.mean)),
    "tpot": ("mean TPOT", lambda run: seconds(run.totals.tpot.mean)),
    "gap": ("longest gap between two tokens", lambda run: seconds(run.longest_gap)),
    "time": ("time", lambda run: f"{run.totals.duration:.2f} s"),
    "speed": ("output tokens a second", lambda run: f"{run.speed:.1f}"),
}
PLAIN = ("forwards", "rows", "padding", "time", "speed")
