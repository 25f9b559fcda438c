"""What a workload leaves on the screen: the tables, figures and problems of `tinycb simulate` and `bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinycb.commands.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, CommandError, one_line

if TYPE_CHECKING:
    from tinycb.load_report import LoadReport
    from tinycb.workloads import Workload

__all__ = ["draw_figure", "finish", "print_tables", "report_problems"]

SHOWN_PROBLEMS = 5


def print_tables(
    workload: Workload,
    reports: Sequence[LoadReport],
    kind: str,
    slo: Mapping[str, float] | None,
    setting: str | None = None,
) -> None:
    """The workload, and a column a report. kind: of the seconds, "modelled" or "measured"."""
    from tinycb.commands.terminal import console
    from tinycb.view.load_tables import exact_table, seconds_table, workload_line

    out = console(sys.stdout)
    out.print(workload_line(workload), soft_wrap=True, markup=False)
    if setting is not None:
        out.print(setting, soft_wrap=True, markup=False)
    out.print()
    out.print(exact_table(reports))
    out.print()
    out.print(seconds_table(reports, kind, slo))


def draw_figure(draw: Callable[[], Sequence[Path]]) -> None:
    """Draw, and say which files were written. Raises CommandError."""
    from tinycb.view.load_plots import PlotError

    try:
        files = draw()
    except PlotError as error:
        raise CommandError(one_line(error)) from None
    print(f"wrote {' and '.join(map(str, files))}", file=sys.stderr)


def report_problems(command: str, problems: Sequence[str], kind: str) -> bool:
    """The first few on stderr, and how many there are. Whether there were any."""
    for problem in problems[:SHOWN_PROBLEMS]:
        print(f"tinycb {command}: {one_line(problem)}", file=sys.stderr)
    if len(problems) > SHOWN_PROBLEMS:
        rest = len(problems) - SHOWN_PROBLEMS
        print(f"tinycb {command}: and {rest} more {kind}; {len(problems)} in all", file=sys.stderr)
    sys.stderr.flush()
    return bool(problems)


def finish(command: str, reports: Sequence[LoadReport], code: int = EXIT_OK) -> int:
    """Tell which requests were refused, and whether the run was interrupted; the exit code."""
    refused = list(dict.fromkeys(problem for report in reports for problem in report.problems))
    bad = report_problems(command, refused, "refused requests")
    if any(report.interrupted for report in reports):
        print(
            f"tinycb {command}: interrupted; the table holds what was served until then",
            file=sys.stderr,
            flush=True,
        )
        return EXIT_INTERRUPTED
    return code or (EXIT_BAD_INPUT if bad else EXIT_OK)
