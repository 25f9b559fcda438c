"""The end of a run: every answer, and a table of latencies in seconds and in steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from tinycb.request import FinishReason, RequestOutput
from tinycb.tracing.metrics import Totals
from tinycb.view.signs import Glyphs, colour, letter, printable

__all__ = ["answer", "latency_table", "totals_line"]

_PROMPT_SHOWN = 72


def answer(output: RequestOutput, index: int, glyphs: Glyphs) -> Text:
    """A heading with the letter and the beginning of the prompt, and the text below it."""
    text = Text()
    text.append(letter(index), style=f"bold {colour(index)}")
    if output.request_id != letter(index):
        text.append(f"  {printable(output.request_id, one_line=True)}", style="bold")
    prompt = output.prompt if output.prompt is not None else f"{len(output.prompt_token_ids)} token ids"
    prompt = printable(prompt, one_line=True)
    if len(prompt) > _PROMPT_SHOWN:  # a question often ends it
        half = _PROMPT_SHOWN // 2 - 2
        prompt = f"{prompt[:half]} {glyphs.cut} {prompt[-half:]}"
    text.append(f"  {prompt}\n", style="dim")
    if output.error is not None:
        text.append(f"   ended with an error: {printable(output.error, one_line=True)}\n", style="bold red")
    body = printable(output.text).strip("\n") or " ".join(map(str, output.token_ids))
    text.append(body)
    if output.finish_reason is FinishReason.ABORT:
        text.append(f" {glyphs.cut} (stopped here)", style="dim")
    return text.append("\n")


def latency_table(outputs: Sequence[RequestOutput], indices: Mapping[str, int]) -> Table:
    """TTFT, time per output token and latency of each request, in seconds and in steps."""
    named = any(output.request_id != letter(indices[output.request_id]) for output in outputs)
    padding = (0, 0) if named else (0, 1, 0, 0)  # so that it fits 80 columns
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)
    table.add_column("", no_wrap=True)
    if named:
        table.add_column("request", no_wrap=True, max_width=12)
    for title in ("prompt", "output"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("ended by", no_wrap=True)
    for title in ("TTFT", "steps", "TPOT", "steps", "latency", "steps"):
        table.add_column(title, justify="right", no_wrap=True)
    for output in outputs:
        index, metrics = indices[output.request_id], output.metrics
        cells = [Text(letter(index), style=f"bold {colour(index)}")]
        if named:
            cells.append(Text(printable(output.request_id, one_line=True)))
        numbers = [str(len(output.prompt_token_ids)), str(len(output.token_ids)), str(output.finish_reason)]
        if metrics is not None:
            numbers += [seconds(metrics.ttft), count(metrics.ttft_steps)]
            numbers += [seconds(metrics.tpot), count(metrics.tpot_steps)]
            numbers += [seconds(metrics.e2el), count(metrics.e2el_steps)]
        table.add_row(*cells, *(Text(number) for number in numbers))
    return table


def totals_line(totals: Totals) -> str:
    """The run in one sentence."""
    done, tokens = totals.returned, totals.num_output_tokens
    return (
        f"{done} request{'s' * (done != 1)}: {totals.num_prompt_tokens} prompt + {tokens} output tokens, "
        f"{totals.steps} steps, {totals.duration:.2f} s, {totals.tokens_per_second:.1f} tokens/s"
    )


def seconds(value: float | None) -> str:
    """A duration with three digits: `1.23 s`, `45.6 ms`; a dash where there is none."""
    if value is None:
        return "-"
    number, unit = (value, "s") if value >= 0.9995 else (value * 1000, "ms")
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f} {unit}"


def count(value: float | int | None) -> str:
    """Steps: whole ones as they are, a mean with two digits."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
