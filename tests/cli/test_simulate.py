"""`tinycb simulate`: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

WORK = "poisson:requests=20,rate=20,prompt=60,output=10"


def test_exact_and_modelled_are_two_tables(cli: Cli) -> None:
    result = cli("simulate", WORK, "--slo", "ttft:1s,tpot:50ms", "--quiet")
    assert result.code == 0
    exact, modelled = result.out.split("\nmodelled ")
    for words in ("steps", "slot use", "padding", "preemptions", "prefix hits", "recomputed"):
        assert words in exact
    for words in ("TTFT       p50", "TPOT", "ITL", "end to end", "output tokens/s", "goodput: TTFT ≤ 1.00 s"):
        assert words in modelled
    assert "NVIDIA H100 data sheet" in exact
    assert " ms" not in exact.split("exact")[1]


def test_json_keeps_them_apart_too(cli: Cli) -> None:
    result = cli("simulate", WORK, "--batching", "chunked,static", "--json", "--quiet")
    chunked, static = map(json.loads, result.out.splitlines())
    assert (chunked["policy"], static["policy"]) == ("chunked", "static")
    assert chunked["exact"]["answered"] == 20
    assert chunked["modelled"]["ttft"]["p95"] > 0
    assert static["exact"]["padded_tokens"] > 0


def test_the_same_workload_gives_the_same_figures(cli: Cli) -> None:
    first, second = (cli("simulate", WORK, "--json", "--quiet").out for _ in range(2))
    assert first == second


def test_a_trace_replays(cli: Cli, tmp_path: Path) -> None:
    assert cli("simulate", WORK, "--batching", "chunked", "--trace", "run.jsonl", "--quiet").code == 0
    result = cli("replay", "run.jsonl")
    assert result.code == 0, result.out + result.err
    assert cli("simulate", WORK, "--trace", "run.jsonl", "--quiet").code == 0
    for name in ("static", "continuous", "chunked"):
        assert (tmp_path / f"run.{name}.jsonl").is_file()


def test_figures_are_svg_and_png(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert cli("simulate", WORK, "--figure", "course", "--quiet").code == 0
    assert cli("simulate", WORK, "--sweep", "rate=5,50", "--figure", "sweep.svg", "--quiet").code == 0
    for name in ("course", "sweep"):
        assert "modelled" in (tmp_path / f"{name}.svg").read_text()
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_is_a_line_a_rate_and_policy(cli: Cli) -> None:
    result = cli(
        "simulate", WORK, "--sweep", "rate=50,5", "--batching", "static,chunked", "--json", "--quiet"
    )
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [(line["rate"], line["policy"]) for line in lines] == [
        (5, "static"), (5, "chunked"), (50, "static"), (50, "chunked")]  # fmt: skip


def test_bad_rows_are_told_counted_and_the_rest_is_served(cli: Cli, tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:17:0{i}.0,{-1 if i > 1 else 30},5" for i in range(9)]
    (tmp_path / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows))
    result = cli("simulate", "azure.csv", "--quiet", "--json")
    assert result.code == 2
    assert json.loads(result.out.splitlines()[0])["exact"]["answered"] == 2
    assert len(result.err_lines) == 6
    assert "azure.csv line 4: ContextTokens must be" in result.err_lines[0]
    assert "and 2 more bad rows; 7 in all" in result.err_lines[5]


def test_a_prompt_longer_than_the_model_is_told_and_the_rest_is_served(cli: Cli, tmp_path: Path) -> None:
    rows = ["2023-11-16 18:17:01.0,9000,5", "2023-11-16 18:17:02.0,90,5"]
    (tmp_path / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows))
    result = cli("simulate", "azure.csv", "--quiet")
    assert result.code == 2
    assert result.err_lines == [
        "tinycb simulate: azure.csv line 2: the prompt has 9000 tokens, max_model_len is 8192"
    ]
    assert "refused" in result.out


def test_a_file_is_looked_for_in_the_data_folder(cli: Cli, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "mine.jsonl").write_text('{"arrival_time": 0, "prompt_tokens": 9, "output_tokens": 2}\n')
    monkeypatch.setenv("TINYCB_DATA", str(folder))
    assert cli("simulate", "mine.jsonl", "--quiet").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.csv"], "nothing.csv cannot be read: No such file"),
        ([WORK, "--device", "tpu"], "there is no device 'tpu'; there are a100, h100, h200, cpu"),
        ([WORK, "--model", "gpt"], "there is no model 'gpt'"),
        ([WORK, "--model", "llama-3-70b"], "llama-3-70b on h100: the weights take 141,107,412,992 bytes"),
        ([WORK, "--batching", "dynamic"], "--batching must be of static, continuous, chunked"),
        ([WORK, "--slo", "speed:1s"], "--slo must be of ttft, tpot, e2el"),
        ([WORK, "--slo", "ttft:soon"], "--slo ttft must be a time such as 50ms"),
        ([WORK, "--sweep", "rate=0"], "--sweep rate must be a positive number"),
        ([WORK, "--sweep", "speed=1"], "--sweep must be rate=R,R"),
        ([WORK, "--sweep", "rate=1", "--trace", "x"], "leave out --sweep"),
        ([WORK, "--rate", "-1"], "--rate must be a positive number"),
        ([WORK, "--scale", "nan"], "--scale must be a positive number"),
        ([WORK, "--limit", "0"], "--limit must be an integer of at least 1"),
        ([WORK, "--efficiency", "2"], "--efficiency must be a positive number of at most 1"),
        ([WORK, "--max-model-len", "9999"], "more than llama-3-8b's own 8192"),
        ([WORK, "--figure", "none/fig"], "there is no folder none"),
        ([WORK, "--trace", "none/run.jsonl"], "there is no folder none"),
        (["poisson:requests=1", "--sweep", "rate=3"], "all requests arrive at once"),
        (["poisson:rate=0"], "rate must be a positive number"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, arguments: list[str], says: str) -> None:
    result = cli("simulate", *arguments, "--quiet")
    assert result.code == 2
    assert result.out == ""
    assert len(result.err_lines) == 1
    assert says in result.err
