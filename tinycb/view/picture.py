"""The picture of one step: the packed row, the budget, the blocks, every request, and what was decided.

Made of lines of exactly the width given, and of no more lines than the height given, so that it fills an
80×24 terminal and never scrolls it. Drawn from a `Frame` alone. Next: `results.py` for the end of a run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from tinycb.view.packed_row import bar, blocks_bar, packed_row
from tinycb.view.run_state import Frame, RequestView
from tinycb.view.signs import BLOCKS, Glyphs, colour, printable
from tinycb.view.timeline import history_line

__all__ = ["picture", "step_line"]

_MARGIN = 9  # of the row, budget and blocks lines
_NUMBERS = 20  # to the right of them
_STATE_STYLES = {
    "done": "dim",
    "aborted": "dim",
    "waits": "dim",
    "preempted": "bold red",
    "failed": "bold red",
}


def picture(frame: Frame, width: int = 80, height: int = 24, glyphs: Glyphs = BLOCKS) -> Group:
    """The step as at most `height` lines of at most `width` cells. 60×16 is the least that makes sense."""
    width, height = max(60, width), max(16, height)
    top = [_title(frame, width, glyphs), Text(), *_row(frame, width, glyphs), Text()]
    room = height - len(top) - 3  # a heading, an empty line, and one sentence at least
    table = _requests(frame, width, min(room, max(4, room - 3)), glyphs)
    used = len(top) + len(table) + 1
    lines = [*top, *table, Text(), *_log(frame, width, height - used)]
    for line in lines:
        line.truncate(width)
    return Group(*lines)


def step_line(frame: Frame, glyphs: Glyphs = BLOCKS) -> str:
    """The step as one line of plain words, where there is no terminal to draw on."""
    parts = []
    for kind, decodes in (("prefill", False), ("decode", True)):
        chosen = [s for s in frame.segments if s.num_tokens and s.decodes is decodes]
        if chosen and decodes:
            parts.append(f"{kind} {' '.join(s.letter for s in chosen)}")
        elif chosen:
            parts.append(f"{kind} {' '.join(f'{s.letter}:{s.num_tokens}' for s in chosen)}")
    if frame.num_padded:
        parts.append(f"padding {frame.num_padded}")
    parts.append(f"blocks {frame.blocks_used}/{frame.info.num_blocks}")
    parts.append(f"done {frame.num_over}")
    if frame.num_waiting:
        parts.append(f"waiting {frame.num_waiting}")
    return f"step {frame.step}: " + ", ".join(parts)


def _title(frame: Frame, width: int, glyphs: Glyphs) -> Text:
    info = frame.info
    left = f" tinycb  {f' {glyphs.dot} '.join((info.model, info.batching, info.attention))}"
    right = f"step {frame.step}  {frame.seconds:.1f} s  {frame.output_tokens} tokens out "
    room = max(0, width - len(right) - 1)
    return Text(left[:room].ljust(width - len(right)) + right, style="bold reverse", no_wrap=True)


def _row(frame: Frame, width: int, glyphs: Glyphs) -> list[Text]:
    info, room = frame.info, width - _MARGIN - _NUMBERS - 2
    row = packed_row(frame.segments, room, glyphs)
    total = frame.num_tokens + frame.num_padded
    scale = f"1 cell = {row.scale:.3g} tokens" if row.scale > 1 else "1 cell = 1 token"
    more = f"{row.hidden} more not shown" if row.hidden else scale
    lines = [
        _labelled("row", row.letters, f"{total} token{'s' * (total != 1)}", room),
        _labelled("", row.glyphs, more if total else "nothing runs", room),
    ]
    if info.budget is not None:
        budget = bar(frame.num_tokens, info.budget, room, glyphs)
        lines.append(_labelled("budget", budget, f"{frame.num_tokens} of {info.budget} tokens", room))
    elif frame.num_padded:
        padding = bar(frame.num_padded, total, room, glyphs, "red")
        lines.append(_labelled("padding", padding, f"{frame.num_padded} of {total} tokens", room))
    else:
        lines.append(_labelled("budget", Text("none: this policy has no limit", style="dim"), "", room))
    pool = blocks_bar(frame.requests, frame.blocks_used, info.num_blocks, room, glyphs)
    lines.append(_labelled("blocks", pool, f"{frame.blocks_used} of {info.num_blocks} used", room))
    lines.append(Text(" " * _MARGIN + glyphs.legend, style="dim", no_wrap=True))
    return lines


def _labelled(label: str, content: Text, numbers: str, room: int) -> Text:
    line = Text(no_wrap=True).append(f" {label}".ljust(_MARGIN), style="bold")
    line.append_text(content)
    return line.append(" " * (room - len(content) + 2)).append(numbers)


def _requests(frame: Frame, width: int, lines: int, glyphs: Glyphs) -> list[Text]:
    """Running ones first, then the queue, then those that left last, in at most `lines` lines."""
    views = _most_telling(frame.requests, lines - 1)
    named = any(view.request_id != view.letter for view in views)
    name = min(16, max((len(view.request_id) for view in views), default=0)) + 1 if named else 0
    columns = f" {'':4}{'request'[: max(0, name - 1)]:{name}}{'state':<10}{'prompt':>11}{'output':>9}  "
    room = width - len(columns) - 1
    first = max(0, frame.step - room + 1)
    heading = (
        f"steps {first}{glyphs.cut if frame.step > first else ''}{frame.step if frame.step > first else ''}"
    )
    table = [Text(columns + heading[:room], style="dim", no_wrap=True)]
    for view in views:
        line = Text(no_wrap=True)
        line.append(f" {view.letter:<4}", style=f"bold {colour(view.index)}")
        if name:
            line.append(f"{printable(view.request_id, one_line=True)[: name - 1]:{name}}")
        line.append(f"{view.state:<10}", style=_STATE_STYLES.get(view.state, ""))
        prompt = f"{min(view.computed, view.num_prompt)}/{view.num_prompt}"
        line.append(f"{prompt:>11}{f'{view.output}/{view.max_tokens}':>9}  ")
        line.append_text(history_line(view, first, frame.step, room, glyphs))
        table.append(line)
    hidden = len(frame.requests) - len(views)
    if hidden:
        waiting = sum(view.state in ("waits", "preempted") for view in frame.requests)
        text = f" {glyphs.cut} and {hidden} more ({waiting} wait in all, {frame.num_over} are over)"
        table[-1] = Text(text, style="dim", no_wrap=True)
    return table


def _most_telling(views: Sequence[RequestView], count: int) -> list[RequestView]:
    """At most `count`, in the order of their letters."""

    def importance(view: RequestView) -> tuple[int, int]:
        if view.is_over:
            return 2, -view.index
        return (1 if view.state in ("waits", "preempted") else 0), view.index

    return sorted(sorted(views, key=importance)[: max(0, count)], key=lambda view: view.index)


def _log(frame: Frame, width: int, lines: int) -> list[Text]:
    """The newest sentences that fit, oldest first; those of this very step stand out."""
    margin = max(4, len(str(frame.step)) + 2)
    texts: list[Text] = []
    for step, sentence in reversed(frame.log):
        style = "" if step == frame.step else "dim"
        wrapped = textwrap.wrap(printable(sentence, one_line=True), width - margin - 2)
        if len(texts) + len(wrapped) > lines:
            break
        label = f"{step}".rjust(margin) + "  "
        block = [
            Text((" " * len(label) if i else label) + part, style=style) for i, part in enumerate(wrapped)
        ]
        texts = block + texts
    return texts
