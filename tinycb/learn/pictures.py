"""How a chapter shows a run: timelines, rows, steps, panels, tables, and what was gained.

The drawings are those of `tinycb.view` and of the visualizer's panels; here they are only put on the screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tinycb.learn.measures import MEASURES, PLAIN
from tinycb.learn.runs import Run
from tinycb.learn.screen import Screen
from tinycb.learn.steps import step_rows, step_table

__all__ = ["Pictures"]


class Pictures:
    """The half of the toolkit that only shows."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def show(self, *parts: RenderableType) -> None:
        """Anything that rich can print."""
        self.screen.show(*parts)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> None:
        """A table of computed values. Numbers are set to the right, but in the first column; floats get three
        digits."""
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for index, column in enumerate(columns):
            words = index == 0 or not all(_is_number(row[index]) for row in rows)
            made.add_column(column, justify="left" if words else "right")
        for row in rows:
            made.add_row(*(Text(f"{v:.3g}" if isinstance(v, float) else str(v)) for v in row))
        self.show(*([Text(caption, style="dim")] if caption else []), made)

    # ── pictures of a run ─────────────────────────────────────────────────────────────────────────────

    def timeline(self, run: Run) -> None:
        """A line a request, a column a step: prefill, decode, waiting, an idle slot. Legend: what occurs."""
        from tinycb.view.timeline import timeline

        views, glyphs = sorted(run.state().requests.values(), key=lambda view: view.index), self.screen.glyphs
        codes = set("".join(view.history for view in views))
        legend = {
            "p": f"{glyphs.prefill} prefill",
            "d": f"{glyphs.decode} decode",
            "h": f"{glyphs.padding} done, and the slot is held",
            "w": f"{glyphs.waits} waits",
            "x": f"{glyphs.preempted} preempted",
        }
        lines = timeline(views, len(run.records), self.screen.width, glyphs)
        caption = f"{run.name}: {run.info.batching} batching, {run.model}"
        signs = "   ".join(sign for code, sign in legend.items() if code in codes)
        self.show(Text(caption, style="bold"), *lines, Text(signs, style="dim"))

    def row(self, run: Run, step: int) -> None:
        """The packed row of a step: whose token each cell is, and what it does: prefill, decode, padding."""
        from tinycb.view.packed_row import packed_row

        frame, glyphs = run.frame(step), self.screen.glyphs
        row = packed_row(frame.segments, self.screen.width - 2, glyphs)
        scale = "1 cell is 1 token" if row.scale == 1 else f"1 cell is {row.scale:.3g} tokens"
        total = frame.num_tokens + frame.num_padded
        note = f"step {step}: {total} tokens; {scale}; {glyphs.prefill} prefill, {glyphs.decode} decode"
        note += f", {glyphs.padding} padding" if frame.num_padded else ""
        self.show(Text(note, style="dim"), row.letters, row.glyphs)

    def steps(self, run: Run, first: int = 0, last: int | None = None) -> None:
        """The table of steps: waiting, running, tokens, finished, and why."""
        rows = [row for row in step_rows(run.records) if row.last >= first]
        self.show(step_table([row for row in rows if last is None or row.first <= last]))

    def picture(self, run: Run, step: int) -> None:
        """One step as `tinycb run` draws it: the packed row, the budget, the blocks, every request."""
        from tinycb.view.picture import picture

        height = 14 + len(run.outputs)
        self.show(picture(run.frame(step), self.screen.width, height, self.screen.glyphs))

    def panels(self, run: Run, step: int, *names: str, select: str | None = None) -> None:
        """Panels of the visualizer: timeline, batch, why, requests, mask, blocks, budget, place.

        select: a request, or a token of it, as `B:5`; without it, nothing is marked.
        """
        from tinycb.tracing import TraceReader
        from tinycb.tui.look import Look
        from tinycb.tui.selection import Selection
        from tinycb.tui.session import Session
        from tinycb.tui.show import Lines, step_lines

        with TraceReader(run.path) as reader:
            session = Session(reader)
            session.go(step)
            if select is not None:
                session.select(select)
            while not session.is_read and session.history.num_steps <= step + self.screen.width:
                session.work(0.1)
            if select is None:
                session.selection = Selection()
            look = Look("dark" if self.screen.is_coloured and not self.screen.notebook else "plain")
            self.show(Lines(step_lines(session.view(look), names, self.screen.width)))

    def answers(self, run: Run) -> None:
        """Every request's text."""
        from tinycb.view.results import answer

        self.show(*(answer(output, i, self.screen.glyphs) for i, output in enumerate(run.outputs)))

    def bars(self, values: Mapping[str, float], unit: str, note: str = "") -> None:
        """A few numbers as bars of one scale. note: what they are and how they were got."""
        from tinycb.view.packed_row import bar

        label, top = max(map(len, values)) + 2, max(values.values())
        room = max(10, self.screen.width - label - 16 - len(unit))
        lines = [Text(note, style="dim")] if note else []
        for name, value in values.items():
            drawn = bar(round(1000 * value), round(1000 * top) or 1, room, self.screen.glyphs)
            lines.append(Text(name.ljust(label)).append_text(drawn).append(f"  {value:.4g} {unit}"))
        self.show(*lines)

    # ── what it gained ────────────────────────────────────────────────────────────────────────────────

    def compare(self, *runs: Run, measures: Sequence[str] = PLAIN) -> None:
        """Runs of the same prompts as columns of a table, and what it says in words; checks equal answers.

        measures: names in `tinycb.learn.measures.MEASURES`. Seconds are those of this machine, and marked.
        """
        from tinycb.view.comparison import findings, first_difference

        results = [run.result for run in runs]
        chosen = [MEASURES[name] for name in measures]
        rows = [[label, *(read(result) for result in results)] for label, read in chosen]
        self.table(["", *(run.name for run in runs)], rows)
        same = first_difference(results) or "Every request got the same tokens in each run."
        measured = all(run.is_measured for run in runs)
        note = "Seconds were measured now, on this machine." if measured else "Seconds mean nothing here."
        self.show(*(Text(sentence) for sentence in [*findings(results), same, note]))

    def gain(self, what: str, before: float, after: float, unit: str, *, measured: bool = False) -> None:
        """One number before and after: `gain("output tokens/s", 39.0, 109.0, "tokens/s", measured=True)`.

        measured: it depends on this machine and moment, and is marked so; counts of a run do not.
        """
        ratio = _ratio(before, after) if before and after else "none left" if before else "new"
        where = "   (measured now, on this machine)" if measured else ""
        text = Text(f"{what}: ", style="bold").append(f"{_amount(before)} → {_amount(after)} {unit}, {ratio}")
        self.show(text.append(where, style="dim"))


def _amount(value: float) -> str:
    """Four digits; of a number of five or more before the point, all of them."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _ratio(before: float, after: float) -> str:
    """In times; of what has become far less, its share as a fraction."""
    return f"{after / before:.2f} times" if after >= 0.1 * before else f"1/{before / after:,.0f} of it"


def _is_number(value: object) -> bool:
    """Also as text, with its unit behind it."""
    return isinstance(value, int | float) or str(value)[:1].isdigit() or value == "-"
