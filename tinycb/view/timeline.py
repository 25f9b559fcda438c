"""A run at a glance: a line a request, a column a step, and what it did there.

    A  ██▄▄▄▄▄▄▄▄▄▄              prefill, then decodes
    B  ┄┄┄┄█▄▄▄▄▄▄▄▄▄▄▄▄         waits first
    C  ██▄▄▄▄········            static batching: done, and its slot is held

A run with more steps than columns is folded: a column shows the rarest thing that happened in its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from tinycb.view.run_state import RequestView
from tinycb.view.signs import Glyphs, colour

__all__ = ["history_line", "timeline"]

_RARITY = "xpdhw"  # the first of these that a folded column holds is what it shows


def history_line(view: RequestView, first: int, last: int, width: int, glyphs: Glyphs) -> Text:
    """Steps `first` … `last` of one request in at most `width` cells, a cell a step if they fit."""
    count = max(1, last - first + 1)
    cells = min(width, count)
    text = Text(no_wrap=True)
    styles = {
        "p": (glyphs.prefill, colour(view.index)),
        "d": (glyphs.decode, colour(view.index)),
        "h": (glyphs.padding, "dim"),
        "w": (glyphs.waits, "dim"),
        "x": (glyphs.preempted, "bold red"),
    }
    history = view.history
    if not view.is_over:
        history = history.ljust(last - view.first_step + 1, "w")
    shown = []
    for cell in range(cells):
        start = first + cell * count // cells - view.first_step
        end = first + (cell + 1) * count // cells - view.first_step
        codes = history[max(0, start) : max(0, end)]
        shown.append(next((code for code in _RARITY if code in codes), " "))
    for code, run in groupby(shown):
        glyph, style = styles.get(code, (" ", ""))
        text.append(glyph * len(list(run)), style=style)
    return text


def timeline(views: Sequence[RequestView], num_steps: int, width: int, glyphs: Glyphs) -> list[Text]:
    """The whole run, a line a request, below a ruler of steps."""
    margin = max((len(view.letter) for view in views), default=1) + 2
    room = max(10, width - margin)
    cells = min(room, max(1, num_steps))
    last = str(num_steps - 1)
    title = "step 0" + (last.rjust(cells - 6) if cells > 8 + len(last) else f" {glyphs.cut} {last}")
    lines = [Text(" " * margin + title, style="dim", no_wrap=True)]
    for view in views:
        line = Text(no_wrap=True).append(view.letter.ljust(margin), style=f"bold {colour(view.index)}")
        line.append_text(history_line(view, 0, num_steps - 1, room, glyphs))
        line.rstrip()
        lines.append(line)
    return lines
