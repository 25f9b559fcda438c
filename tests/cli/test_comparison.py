"""What a comparison says follows from its numbers, whichever way they fall."""

from __future__ import annotations

import io
from dataclasses import fields

from rich.console import Console

from tinycb.tracing.metrics import Totals, Waste
from tinycb.tracing.summary import Summary
from tinycb.view.comparison import PolicyResult, comparison_table, findings, first_difference


def result(
    name: str,
    seconds: float,
    *,
    forward_tokens: int = 100,
    padded: int = 0,
    rows: int = 50,
    gap: float | None = 0.1,
    steps: int = 10,
    tokens: tuple[int, ...] = (1, 2, 3),
) -> PolicyResult:
    values: dict[str, object] = {f.name: 0 for f in fields(Totals)}
    values |= {f.name: Summary() for f in fields(Totals) if f.type == "Summary"}
    values |= {"duration": seconds, "num_output_tokens": 100, "forwards": steps, "steps": steps}
    values |= {"forward_tokens": forward_tokens, "waste": Waste(padded_tokens=padded, idle_slots=padded // 2)}
    return PolicyResult(name, Totals(**values), {"A": tokens}, rows, gap)  # type: ignore[arg-type]


def test_who_is_fastest_is_read_from_the_numbers() -> None:
    one, continuous, chunked = (result(n, 9) for n in ("one at a time", "continuous", "chunked"))
    assert findings([one, continuous, chunked]) == [
        "Nothing outgrew the budget, so continuous and chunked ran the same steps."
    ]
    fast = result("continuous", 3, steps=5)
    text = " ".join(findings([one, fast, result("chunked", 6)]))
    assert "Continuous is the fastest here, 3.0 times one at a time." in text
    assert "for 20.0 rows with continuous, for 10.0 one at a time" in text
    close = findings([one, fast, result("chunked", 3.1, steps=5)])[0]
    assert close == "Continuous and chunked are the fastest here, 3.0 times one at a time."
    assert findings([result("one at a time", 2), result("static", 4)])[0].startswith("One at a time is")


def test_padding_and_chunks_are_told_only_where_there_are_some() -> None:
    text = " ".join(findings([result("static", 5, padded=40), result("continuous", 5)]))
    assert "40 % of the tokens that static ran are padding" in text
    assert "20 rows of requests that were done" in text
    whole, chunked = result("continuous", 5, rows=700, gap=0.8), result("chunked", 5, rows=256, gap=0.3)
    assert (
        "With at most 256 rows in a forward, not 700, the longest gap between two tokens falls"
        in " ".join(findings([whole, chunked]))
    )
    worse = result("chunked", 5, rows=256, gap=0.9)
    assert "does not fall: 800 ms continuous, 900 ms chunked" in " ".join(findings([whole, worse]))


def test_the_first_token_that_differs_is_named() -> None:
    same, other = result("one at a time", 1), result("static", 1, tokens=(1, 9, 3))
    shorter = result("chunked", 1, tokens=(1, 2))
    assert first_difference([same, result("static", 2)]) is None
    assert first_difference([same, other]) == (
        "request A differs at output token 1 between one at a time and static"
    )
    assert "at output token 2 between one at a time and chunked" in str(first_difference([same, shorter]))


def test_the_table_fits_80_columns_and_marks_the_fastest() -> None:
    names = ("one at a time", "static", "continuous", "chunked")
    results = [result(name, 1000 + i, forward_tokens=10**6, rows=9999) for i, name in enumerate(names)]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(comparison_table(results))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert lines[-1].count("*") == 1
