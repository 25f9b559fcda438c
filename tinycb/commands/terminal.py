"""The terminal: what it can show, messages and progress on stderr, and the picture while a run goes on.

Pictures come from `tinycb.view`; here they are put on a screen, often enough to follow and seldom enough to
cost nothing. With no terminal, with NO_COLOR or with TERM=dumb, all is plain lines.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tinycb.commands.serving import Stopwatch
from tinycb.tracing.records import StepRecord
from tinycb.view.picture import picture, step_line
from tinycb.view.run_state import Frame, RunState
from tinycb.view.signs import ASCII, BLOCKS, Glyphs, printable

__all__ = ["LiveWatcher", "PlainWatcher", "Watcher", "console", "glyphs_for", "is_interactive", "progress"]

FRAMES_PER_SECOND = 12
DRAWING_SHARE = 0.04  # of the time, at most
PLAIN_EVERY = 2.0  # seconds between lines when nothing happens


def is_interactive(stream: TextIO) -> bool:
    """Whether pictures may be redrawn in place and coloured."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `tinycb.cli`, where rich would end the process."""
        raise BrokenPipeError


def console(stream: TextIO) -> Console:
    """A console that writes no escape sequence unless the stream is a terminal that wants them."""
    if is_interactive(stream):
        return _Console(file=stream, highlight=False, emoji=False)
    width = None if stream.isatty() else 100
    return _Console(
        file=stream, highlight=False, emoji=False, color_system=None, force_terminal=False, width=width
    )


def glyphs_for(stream: TextIO) -> Glyphs:
    """Blocks where the stream's encoding has them."""
    try:
        (BLOCKS.legend + BLOCKS.free + BLOCKS.cut).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


@contextmanager
def progress(first: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Says what takes over a second: a spinner, or lines. Gives a function for the next message."""
    if quiet:
        yield lambda message: None
    elif is_interactive(sys.stderr):
        with console(sys.stderr).status(Text(first)) as status:
            yield lambda message: status.update(Text(message))
    else:
        later = _Later()
        later.say(first)
        try:
            yield later.say
        finally:
            later.cancel()


class _Later:
    """Says on stderr what is going on if it still is a second later."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def say(self, message: str) -> None:
        self.cancel()
        self._timer = threading.Timer(self._seconds, lambda: print(message, file=sys.stderr, flush=True))
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Watcher:
    """Keeps the state of a run and the frame that tells most about it; shows nothing."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.best: Frame | None = None
        self._best_score = -1.0

    def observe(self, record: StepRecord) -> None:
        self.state.observe(record)
        score = _how_telling(record)
        if score > self._best_score:
            self._best_score, self.best = score, self.state.frame()
        self.show(record)

    def show(self, record: StepRecord) -> None:
        """For subclasses."""

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveWatcher(Watcher):
    """Redraws the picture in place. The engine's clock stands still meanwhile."""

    def __init__(self, state: RunState, stream: TextIO, stopwatch: Stopwatch) -> None:
        super().__init__(state)
        self._console = console(stream)
        self._glyphs = glyphs_for(stream)
        self._stopwatch = stopwatch
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._next = 0.0

    def show(self, record: StepRecord) -> None:
        if (start := time.monotonic()) < self._next:
            return
        with self._stopwatch.paused():
            self._draw()
        spent = time.monotonic() - start
        self._next = start + spent + max(1 / FRAMES_PER_SECOND, spent / DRAWING_SHARE)

    def _draw(self) -> None:
        width, height = self._console.size
        self._live.update(picture(self.state.frame(), width - 1, height - 1, self._glyphs), refresh=True)

    def __enter__(self) -> LiveWatcher:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)


class PlainWatcher(Watcher):
    """A line for each step that admits, ends or preempts somebody, and one every few seconds in between."""

    def __init__(self, state: RunState, stream: TextIO) -> None:
        super().__init__(state)
        self._stream = stream
        self._glyphs = glyphs_for(stream)
        self._next = 0.0

    def show(self, record: StepRecord) -> None:
        eventful = record.admitted or record.finished or record.preempted
        now = time.monotonic()
        if not eventful and now < self._next:
            return
        self._next = now + PLAIN_EVERY
        lines = [step_line(self.state.frame(), self._glyphs)]
        shown = ("admit", "finish", "preempt")
        lines += [f"  {decision.sentence}" for decision in record.decisions if decision.action in shown]
        print("\n".join(printable(line) for line in lines), file=self._stream, flush=True)


def _how_telling(record: StepRecord) -> float:
    """Prefill beside decode, many requests, many tokens, padding, preemptions: worth a picture."""
    counts = record.scheduled.values()
    chunks = sum(count > 1 for count in counts)
    score = len(counts) + min(chunks, 3) + 2 * math.log2(1 + sum(counts) + record.num_padded)
    return score + 15 * (0 < chunks < len(counts)) + 8 * bool(record.num_padded) + 5 * bool(record.preempted)
