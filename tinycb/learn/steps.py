"""A run as a table: step by step, who waits, who runs, who is done, and why. From the records alone.

Steps in which nothing changes are one line together. The golden tables of the tests are this, as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from tinycb.tracing.records import StepRecord

__all__ = ["StepRow", "step_rows", "step_table", "steps_as_text"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step, or several alike. tokens: each request's share of the forward. reasons: sentences."""

    first: int
    last: int
    waiting: tuple[str, ...]
    running: tuple[str, ...]
    tokens: tuple[tuple[str, int], ...]
    finished: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def steps(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"

    @property
    def shares(self) -> str:
        return " ".join(name if count == 1 else f"{name}:{count}" for name, count in self.tokens)


def step_rows(records: Iterable[StepRecord]) -> list[StepRow]:
    """The rows of a run, from its first record on. A reason that only repeats is given once."""
    rows: list[StepRow] = []
    waiting: list[str] = []
    said: dict[str, str] = {}
    for record in records:
        gone = {*record.admitted, *record.aborted}
        refused = set(record.refused)
        waiting += [name for name in record.arrived if name not in refused]
        waiting = [*record.preempted[::-1], *(name for name in waiting if name not in gone)]
        reasons, keeps = [], {}
        for decision in record.decisions:
            if decision.action in ("wait", "hold"):
                keeps[decision.request_id] = decision.reason.value
                if said.get(decision.request_id) == decision.reason.value:
                    continue
            reasons.append(decision.sentence)
        said = keeps
        row = StepRow(
            record.step,
            record.step,
            tuple(waiting),
            tuple(record.running),
            tuple(record.scheduled.items()),
            tuple(record.finished),
            tuple(reasons),
        )
        if rows and _goes_on(rows[-1], row):
            before = rows.pop()
            row = StepRow(
                before.first, row.last, row.waiting, row.running, row.tokens, row.finished, before.reasons
            )
        rows.append(row)
    return rows


def _goes_on(before: StepRow, row: StepRow) -> bool:
    """Whether a quiet step can share the line of a quiet one before it."""
    same = (before.waiting, before.running, before.tokens) == (row.waiting, row.running, row.tokens)
    return same and not before.finished and not row.finished and not before.reasons and not row.reasons


def step_table(rows: Sequence[StepRow]) -> Table:
    """For the screen."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("step", justify="right", no_wrap=True)
    for title in ("waiting", "running", "tokens", "finished", "why"):
        table.add_column(title)
    for row in rows:
        cells = (row.steps, " ".join(row.waiting), " ".join(row.running), row.shares, " ".join(row.finished))
        table.add_row(*map(Text, cells), Text("\n".join(row.reasons), style="dim"))
    return table


def steps_as_text(rows: Sequence[StepRow]) -> str:
    """The same as plain lines, for a file that a test compares with."""
    lines = []
    for row in rows:
        finished = f"  finished {' '.join(row.finished)}" if row.finished else ""
        waiting = " ".join(row.waiting) or "nobody"
        lines.append(f"step {row.steps}: waiting {waiting}  running {row.shares or 'nobody'}{finished}")
        idle = [name for name in row.running if name not in dict(row.tokens)]
        if idle:
            lines.append(f"    in a slot, with no token: {' '.join(idle)}")
        lines += [f"    {reason}" for reason in row.reasons]
    return "\n".join(lines) + "\n"
