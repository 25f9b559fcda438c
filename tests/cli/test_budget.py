"""`tinycb budget`: what it prints, and how it refuses."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli


def test_it_prints_the_arithmetic(cli: Cli) -> None:
    result = cli("budget", "llama-3-8b", "--memory", "80GiB", "--dtype", "bf16", "--block-size", "16",
                 "--context", "4096")  # fmt: skip
    assert result.code == 0
    assert result.err == ""
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "a token's K and V, k 131,072 B 2 · L 32 · KH 8 · D 128 · 2 bytes" in lines
    assert "4,096 512.0 MiB 130" in lines
    assert "256 16 0 tokens 15.9 MiB 3.02 % 64 B" in lines
    assert "modelled" not in result.out


def test_with_a_device_it_models_a_step_and_names_the_source(cli: Cli) -> None:
    result = cli("budget", "llama-3-8b", "--device", "h100", "--context", "2048")
    assert result.code == 0
    assert "modelled" in result.out
    assert "source: NVIDIA H100 data sheet" in result.out
    assert "1 decode at 2,048" in result.out


def test_json_holds_the_same_figures(cli: Cli) -> None:
    result = cli(
        "budget", "llama-3-8b", "--memory", "80GiB", "--device", "a100", "--context", "4096", "--json"
    )
    values = json.loads(result.out)
    assert values["token_bytes"] == 131_072
    assert values["requests"] == 130
    assert values["device"]["name"] == "a100"
    assert values["decode_steps"][0]["bound"] == "bytes"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["llama-3-70b", "--memory", "80GiB"], "the weights take 141,107,412,992 bytes"),
        (["llama-9", "--memory", "80GiB"], "there is no model 'llama-9'; give llama-3-70b"),
        (["llama-3-8b"], "give --memory SIZE"),
        (["llama-3-8b", "--device", "h1000"], "there is no device 'h1000'; there are a100, h100, h200, cpu"),
        (["llama-3-8b", "--memory", "lots"], "--memory must be a positive size"),
        (["llama-3-8b", "--memory", "16060522497"], "holds no block"),
        (["llama-3-8b", "--memory", "80GiB", "--block-size", "0"], "--block-size must be an integer from 1"),
        (
            ["llama-3-8b", "--memory", "80GiB", "--context", "-5"],
            "--context must be an integer of at least 1",
        ),
        (["llama-3-8b", "--memory", "80GiB", "--max-num-seqs", "x"], "--max-num-seqs must be an integer"),
        (["llama-3-8b", "--memory", "80GiB", "--dtype", "int4"], "--dtype must be float32"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, arguments: list[str], says: str) -> None:
    result = cli("budget", *arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err_lines) == 1
    assert says in result.err
