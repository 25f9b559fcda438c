"""`tinycb profile` on the tiny model: the table, its JSON, and how it refuses."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli
from tinycb.profiling import PARTS

SMALL = (
    "--model",
    "tiny-random",
    "--requests",
    "3",
    "--prompt",
    "4-9",
    "--output",
    "3",
    "--num-blocks",
    "64",
)


def test_the_table_has_a_line_a_part_and_they_add_up(cli: Cli) -> None:
    result = cli("profile", *SMALL, "--quiet")
    assert result.code == 0, result.err
    assert result.err == ""
    rows = [line for line in result.out.splitlines() if line.endswith("%")]
    assert [
        row.rsplit(maxsplit=3)[0].strip() for row in rows if row.rsplit(maxsplit=3)[0].strip() in PARTS
    ] == [*PARTS]
    shares = [float(row.split()[-2]) for row in rows]
    assert shares[-1] == 100.0
    assert sum(shares[:-1]) == pytest.approx(100, abs=0.5)
    assert "tiny-random, chunked, paged, float32: 3 requests, 3 steps of" in result.out
    assert "the matrix products alone would allow" in result.out


def test_json_has_the_seconds_of_the_whole_run(cli: Cli) -> None:
    found = json.loads(cli("profile", *SMALL, "--json", "--quiet", "--batching", "static").out)
    assert found["output_tokens"] == 9
    assert sum(found["parts"].values()) == pytest.approx(found["seconds"])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (
            ("--prompt", "9-3"),
            "--prompt must be a number, or a smaller and a larger one such as 8-128, not 9-3",
        ),
        (("--prompt", "many"), "--prompt must be an integer of at least 1, not 'many'"),
        (("--requests", "0"), "--requests must be an integer of at least 1, not 0"),
        (("--prompt", "9999"), "the prompt has 9999 tokens, max_model_len is 512"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, flags: tuple[str, ...], named: str) -> None:
    result = cli("profile", *SMALL, "--quiet", *flags)
    assert result.code == 2
    assert result.err_lines == [f"tinycb profile: {named}"]
