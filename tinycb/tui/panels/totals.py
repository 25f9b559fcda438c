"""Two runs in numbers, side by side: steps, waste, latencies, and where they first differ."""

from __future__ import annotations

from tinycb.tracing.metrics import Totals
from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.panels.requests import duration
from tinycb.tui.tally import Tally

__all__ = ["TotalsDrawing"]

LABEL = 24
NARROWEST = 62  # columns for a label and two values


def _rows(totals: Totals) -> list[tuple[str, str]]:
    waste = totals.waste
    ttft, tpot = totals.ttft_steps.mean, totals.tpot_steps.mean
    return [
        ("steps", str(totals.steps)),
        ("forward tokens", str(totals.forward_tokens)),
        ("  padded", str(waste.padded_tokens)),
        ("  recomputed", str(waste.recomputed_tokens)),
        ("idle slots × steps", str(waste.idle_slots)),
        ("preemptions", str(totals.num_preemptions)),
        ("prefix-cache tokens", str(totals.prefix_hit_tokens)),
        ("mean TTFT", f"{duration(totals.ttft.mean)}, {_steps(ttft)}"),
        ("mean TPOT", f"{duration(totals.tpot.mean)}, {_steps(tpot)}"),
        ("time", duration(totals.duration)),
        ("output tokens a second", f"{totals.tokens_per_second:.1f}"),
    ]


def _steps(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} steps"


class TotalsDrawing(Drawing):
    name = "totals"
    title = "Both runs"
    help = "All of both runs in numbers. d goes to the first step in which they differ, t aligns by time."

    def __init__(self, tally: Tally, names: list[str]) -> None:
        super().__init__()
        self._tally = tally
        self._names = names

    def lay_out(self) -> None:
        left, right = (_rows(totals) for totals in self._tally.totals)
        self.rows = [("", *self._names)]
        self.rows += [(label, a, b) for (label, a), (_, b) in zip(left, right, strict=True)]
        self.columns = 2 if self.width >= 2 * NARROWEST and self.height < len(self.rows) else 1
        tall = -(-(len(self.rows) - 1) // self.columns)
        self.extent = (self.width, 1 + tall)

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line, row = self.blank(), y + scroll_y
        tall, room = self.extent[1] - 1, self.width // self.columns
        for column in range(self.columns):
            at = 0 if row == 0 else column * tall + row
            if row <= tall and at < len(self.rows):
                self._row(line, column * room, room, self.rows[at], heading=at == 0)
        return line

    def _row(self, line: Line, x: int, width: int, row: tuple[str, ...], heading: bool) -> None:
        look = self.view.look
        label, *values = row
        line.put(x + 1, label, look.dim)
        room = (width - LABEL) // 2
        for i, value in enumerate(values):
            style = look.bold if heading or values[0] != values[1] else look.text
            line.put(x + LABEL + i * room, clip(value, room - 1), style)

    def note(self) -> str:
        tally = self._tally
        if tally.first_difference is None:
            return "no step differs" if tally.is_done else f"comparing: step {tally.index} …"
        index, field = tally.first_difference
        verdict = f" · {tally.verdict()}" if tally.is_done else ""
        return f"they first differ in step {index}: {field} (d goes there){verdict}"
