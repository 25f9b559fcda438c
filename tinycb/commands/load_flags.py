"""The flags that `tinycb simulate` and `tinycb bench` share, and what they mean.

Next: `load_output.py`, which prints what came of a workload.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tinycb.commands.errors import CommandError, one_line
from tinycb.commands.numbers import duration, positive, whole

if TYPE_CHECKING:
    from tinycb.workloads import Workload

__all__ = [
    "add_load_output_flags",
    "add_workload_flags",
    "check_figure",
    "open_workload_flags",
    "policies",
    "service_levels",
    "trace_path",
]

POLICIES = ("static", "continuous", "chunked")
SLO_NAMES = ("ttft", "tpot", "e2el")


def add_workload_flags(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Which requests, and how they are changed before they are served."""
    text = "a traffic file, poisson:… or bursty:…"
    parser.add_argument("workload", nargs="?" if optional else None, metavar="WORKLOAD", help=text)
    group = parser.add_argument_group("workload")
    group.add_argument("--limit", metavar="N", help="the first N requests")
    group.add_argument("--scale", metavar="X", help="prompts and outputs X times as long")
    group.add_argument(
        "--rate", metavar="R", help="R requests/s on average: gaps shrink or grow in proportion"
    )
    group.add_argument(
        "--slo", metavar="LEVELS", help="goodput counts requests that meet these, such as ttft:1s,tpot:50ms"
    )


def add_load_output_flags(
    parser: argparse.ArgumentParser, *, several: bool = False
) -> argparse._ArgumentGroup:
    """What is left of a run. several: it may have several policies."""
    files, lines = ("; with several policies, a file each", " a policy") if several else ("", "")
    group = parser.add_argument_group("output")
    group.add_argument("--figure", metavar="NAME", help="write NAME.svg and NAME.png")
    group.add_argument("--trace", metavar="FILE", help="record every step" + files)
    group.add_argument("--json", action="store_true", help=f"one JSON object{lines} on stdout")
    group.add_argument("--quiet", action="store_true", help="no progress")
    return group


def open_workload_flags(args: argparse.Namespace) -> Workload:
    """The workload, changed as the flags say. Raises CommandError; bad rows are told on stderr."""
    from tinycb.workloads import WorkloadError, open_workload

    limit = whole("--limit", args.limit) if args.limit is not None else None
    scale = positive("--scale", args.scale) if args.scale is not None else None
    rate = positive("--rate", args.rate) if args.rate is not None else None
    name = args.workload
    data = os.environ.get("TINYCB_DATA")
    if data and not Path(name).exists() and (Path(data) / name).is_file():
        name = str(Path(data) / name)
    try:
        workload = open_workload(name, limit)
        workload = workload.scale(scale) if scale is not None else workload
        return workload.at_rate(rate) if rate is not None else workload
    except WorkloadError as error:
        raise CommandError(one_line(error)) from None


def policies(text: str) -> list[str]:
    """`static,continuous,chunked`, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in POLICIES:
            raise CommandError(f"--batching must be of {', '.join(POLICIES)}, not {name!r}")
    if not names:
        raise CommandError(f"--batching names no policy; there are {', '.join(POLICIES)}")
    return list(dict.fromkeys(names))


def service_levels(text: str | None) -> dict[str, float] | None:
    """`ttft:1s,tpot:50ms` in seconds."""
    if text is None:
        return None
    levels = {}
    for part in text.split(","):
        name, _, value = part.partition(":")
        if name.strip() not in SLO_NAMES:
            raise CommandError(f"--slo must be of {', '.join(SLO_NAMES)}, as in ttft:1s, not {part!r}")
        levels[name.strip()] = duration(f"--slo {name.strip()}", value)
    return levels


def trace_path(path: str, policy: str, one: bool) -> Path:
    """`run.jsonl`, or `run.static.jsonl` where there are several policies."""
    whole_path = Path(path)
    return whole_path if one else whole_path.with_name(f"{whole_path.stem}.{policy}{whole_path.suffix}")


def check_figure(path: str | None) -> None:
    """Raise CommandError now, and not after the work is done, if a figure cannot be drawn or written."""
    from tinycb.view.load_plots import PlotError, check_matplotlib

    if path is None:
        return
    try:
        check_matplotlib()
    except PlotError as error:
        raise CommandError(f"--figure: {error}") from None
    if not Path(path).parent.is_dir():
        raise CommandError(f"cannot write --figure {path}: there is no folder {Path(path).parent}")
