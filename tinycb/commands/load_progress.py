"""Progress of a long run: a bar with requests and steps on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tinycb.commands.terminal import console, is_interactive
from tinycb.tracing.records import StepRecord

__all__ = ["load_progress"]

EVERY, PLAIN_EVERY = 0.1, 5.0  # seconds


@contextmanager
def load_progress(
    label: str, requests: int | None, quiet: bool = False
) -> Iterator[Callable[[StepRecord], None]]:
    """Gives a function that takes each step's record. requests: in all, or None where only steps count."""
    if quiet:
        yield lambda record: None
        return
    done, next_time = 0, time.monotonic() + (EVERY if is_interactive(sys.stderr) else PLAIN_EVERY)
    if not is_interactive(sys.stderr):

        def say(record: StepRecord) -> None:
            nonlocal done, next_time
            done += len(record.returned) + len(record.refused)
            if time.monotonic() >= next_time:
                next_time = time.monotonic() + PLAIN_EVERY
                counted = f"{done:,} of {requests:,} requests, " if requests is not None else ""
                text = f"{label}: {counted}{record.step + 1:,} steps"
                print(text, file=sys.stderr, flush=True)

        yield say
        return

    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    counts = "{task.completed:,}/{task.total:,} requests, " if requests is not None else ""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(counts + "{task.fields[steps]:,} steps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(label, total=requests, steps=0)

        def show(record: StepRecord) -> None:
            nonlocal done, next_time
            done += len(record.returned) + len(record.refused)
            if time.monotonic() >= next_time:
                next_time = time.monotonic() + EVERY
                bar.update(task, completed=done, steps=record.step + 1)

        yield show
