"""Prints what a run came to: the answers, the latencies, the run at a glance; and draws it as SVG."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from tinycb.commands.errors import CommandError
from tinycb.commands.prompts import PromptSpec
from tinycb.commands.serving import Served
from tinycb.commands.terminal import Watcher, console, glyphs_for
from tinycb.request import FinishReason
from tinycb.tracing.metrics import Totals
from tinycb.view.picture import picture
from tinycb.view.results import answer, latency_table, totals_line
from tinycb.view.signs import BLOCKS
from tinycb.view.svg import svg
from tinycb.view.timeline import timeline

__all__ = ["print_answers", "print_run", "write_svg"]

TIMELINE_LINES = 40
SVG_WIDTH, SVG_HEIGHT = 100, 25


def print_answers(served: Served, specs: Sequence[PromptSpec], *, quiet: bool = False) -> None:
    """Each text on stdout; of a single request with `quiet`, the bare text."""
    out, glyphs = console(sys.stdout), glyphs_for(sys.stdout)
    if quiet and len(specs) == 1:
        for output in served.outputs:
            out.print(Text(output.text), soft_wrap=True)
        return
    indices = {spec.request_id: index for index, spec in enumerate(specs)}
    for output in served.outputs:
        if output.token_ids or output.error is not None:
            out.print(answer(output, indices[output.request_id], glyphs), soft_wrap=True)


def print_run(
    served: Served, specs: Sequence[PromptSpec], watcher: Watcher, totals: Totals, *, quiet: bool = False
) -> None:
    """All that a run leaves on stdout."""
    print_answers(served, specs, quiet=quiet)
    if quiet or not totals.forwards:
        return
    out, glyphs = console(sys.stdout), glyphs_for(sys.stdout)
    indices = {spec.request_id: index for index, spec in enumerate(specs)}
    views = list(watcher.state.requests.values())
    for line in timeline(views[:TIMELINE_LINES], watcher.state.num_steps, min(out.width, 140), glyphs):
        out.print(line, no_wrap=True, crop=True)
    if len(views) > TIMELINE_LINES:
        out.print(f"{glyphs.cut} and {len(views) - TIMELINE_LINES} more requests")
    out.print(Text(glyphs.legend, style="dim"))
    finished = [output for output in served.outputs if output.finish_reason is not FinishReason.ABORT]
    if finished:
        out.print()
        out.print(latency_table(finished, indices))
    out.print(Text(totals_line(totals)))


def write_svg(path: str, watcher: Watcher) -> None:
    """The most telling step and the whole run as one SVG. Raises CommandError if it cannot be written."""
    frame, state = watcher.best, watcher.state
    if frame is None:
        raise CommandError(f"nothing ran, so there is no picture to write to {path}")
    lines = [*picture(frame, SVG_WIDTH, SVG_HEIGHT).renderables, Text()]
    lines.append(Text(f" all {state.num_steps} steps", style="bold"))
    views = list(state.requests.values())[:TIMELINE_LINES]
    lines += [Text(" ").append_text(line) for line in timeline(views, state.num_steps, SVG_WIDTH - 1, BLOCKS)]
    info = frame.info
    title = f"A run of {info.model}, {info.batching}: step {frame.step}, and all {state.num_steps} steps"
    try:
        Path(path).write_text(
            svg([line for line in lines if isinstance(line, Text)], title), encoding="utf-8"
        )
    except OSError as error:
        raise CommandError(f"cannot write --svg {path}: {error.strerror or error}") from None
