"""What a run prints, and that it is what the library gives."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.cli.conftest import TINY, Cli
from tinycb import Engine, EngineConfig, SamplingParams, __version__
from tinycb.commands.prompts import from_file
from tinycb.model.checkpoint import load
from tinycb.tracing import TraceReader

DEMO = Path(__file__).parents[2] / "tinycb" / "workloads" / "demo_prompts.jsonl"
TEXTS = ["hello", "how are you today, my good friend", "x"]


def test_the_answers_are_the_librarys(cli: Cli) -> None:
    result = cli("run", *TEXTS, *TINY, "--max-tokens", "9", "--json")
    assert result.code == 0
    engine = Engine.from_pretrained("tiny-random", EngineConfig(num_blocks=256))
    expected = engine.generate(TEXTS, SamplingParams(max_tokens=9))
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer["token_ids"] for answer in answers] == [output.token_ids for output in expected]
    assert [answer["text"] for answer in answers] == [output.text for output in expected]
    assert [(answer["id"], answer["prompt"]) for answer in answers] == list(zip("ABC", TEXTS, strict=True))


def test_json_has_every_field_and_metrics_in_seconds_and_steps(cli: Cli) -> None:
    result = cli("run", "hello", *TINY, "--json", "--quiet")
    assert result.err == ""
    answer = json.loads(result.out)
    assert set(answer) == {
        *("id", "prompt", "prompt_token_ids", "token_ids", "text", "finish_reason", "error", "metrics")
    }
    metrics = answer["metrics"]
    assert (metrics["ttft_steps"], metrics["e2el_steps"], metrics["tpot_steps"]) == (1, 4, 1.0)
    assert 0 < metrics["ttft"] <= metrics["e2el"] < math.inf


def test_plain_output_has_texts_table_and_timeline(cli: Cli) -> None:
    result = cli("run", *TEXTS, *TINY)
    assert result.code == 0
    for part in (*TEXTS, "TTFT", "TPOT", "latency", "steps", "prefill", "3 requests", "4 steps"):
        assert part in result.out
    assert "\x1b" not in result.out + result.err
    assert "step 0: prefill A:5 B:33 C:1" in result.err
    assert "A starts with 5 of 5 tokens" in result.err


def test_quiet_prints_the_bare_text_of_a_single_prompt(cli: Cli) -> None:
    many = cli("run", "hello", "x", *TINY, "--quiet")
    single = cli("run", "hello", *TINY, "--quiet")
    assert single.err == many.err == ""
    assert "TTFT" not in many.out
    assert single.out == json.loads(cli("run", "hello", *TINY, "--quiet", "--json").out)["text"] + "\n"


def test_a_file_of_lines_and_flags_as_defaults(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text('hello\n\n  \n{"not json\n')
    result = cli("run", "--prompts", "p.txt", *TINY, "--json", "--quiet")
    assert [json.loads(line)["prompt"] for line in result.out.splitlines()] == ["hello", '{"not json']
    (tmp_path / "p.json").write_text('{"prompt": "a", "max_tokens": 2}\n{"prompt": "b", "id": "two"}\n')
    result = cli("run", "--prompts", "p.json", *TINY, "--json", "--quiet", "--max-tokens", "3")
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [(answer["id"], len(answer["token_ids"])) for answer in answers] == [("A", 2), ("two", 3)]


def test_sampling_flags_reach_the_requests(cli: Cli) -> None:
    flags = (*TINY, "--json", "--quiet", "--max-tokens", "20")
    greedy = json.loads(cli("run", "hello", *flags).out)
    drawn = [
        json.loads(cli("run", "hello", *flags, "--temperature", "3", "--top-k", "50", "--seed", seed).out)
        for seed in ("1", "1", "2")
    ]
    assert drawn[0]["token_ids"] == drawn[1]["token_ids"] != drawn[2]["token_ids"]
    stopped = json.loads(cli("run", "hello", *flags, "--stop", greedy["text"][2:4]).out)
    assert (stopped["finish_reason"], stopped["text"]) == ("stop", greedy["text"][:2])


@pytest.mark.parametrize("batching", ["static", "continuous", "chunked"])
@pytest.mark.parametrize("attention", ["mask", "varlen", "paged"])
def test_every_policy_and_path_gives_the_same_tokens(cli: Cli, batching: str, attention: str) -> None:
    flags = (*TINY, "--json", "--quiet", "--no-prefix-caching", "--max-num-batched-tokens", "8")
    result = cli("run", *TEXTS, *flags, "--batching", batching, "--attention", attention)
    expected = cli("run", *TEXTS, *TINY, "--json", "--quiet")
    tokens = [[json.loads(line)["token_ids"] for line in r.out.splitlines()] for r in (result, expected)]
    assert tokens[0] == tokens[1]


def test_a_trace_replays(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", *TEXTS, *TINY, "--trace", "run.jsonl", "--quiet").code == 0
    result = cli("replay", "run.jsonl")
    assert (result.code, result.out, result.err) == (0, "run.jsonl: all 4 steps are the same\n", "")

    lines = (tmp_path / "run.jsonl").read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"B":1', '"B":2', 1)
    (tmp_path / "run.jsonl").write_text("".join(lines))
    result = cli("replay", "run.jsonl")
    assert result.code == 1
    assert result.out.startswith("run.jsonl: step 1 differs in ")
    (tmp_path / "half.jsonl").write_text("".join(lines)[:-9])
    assert cli("replay", "half.jsonl").code in (0, 1)
    assert cli("replay", str(Path(__file__))).code == 2


def test_compare_shows_every_policy_and_checks_the_tokens(cli: Cli, tmp_path: Path) -> None:
    flags = ("--max-num-seqs", "2", "--max-num-batched-tokens", "16", "--trace", "run.jsonl")
    result = cli("run", "--compare", *TEXTS, *TINY, *flags)
    assert result.code == 0
    for part in (
        "one at a time",
        "static",
        "continuous",
        "chunked",
        "rows per matrix product",
        "forward tokens",
    ):
        assert part in result.out
    for part in (
        "padding",
        "idle slots",
        "output tokens/s",
        "All 4 runs gave the same tokens for all 3 requests.",
    ):
        assert part in result.out
    assert max(map(len, result.out.splitlines())) <= 100
    for policy in ("one-at-a-time", "static", "continuous", "chunked"):
        with TraceReader(tmp_path / f"run.{policy}.jsonl") as reader:
            assert len(reader) > 0


def test_compare_draws_the_same_random_numbers_in_every_run(cli: Cli) -> None:
    result = cli("run", "--compare", *TEXTS, *TINY, "--temperature", "2", "--max-tokens", "12")
    assert "All 4 runs gave the same tokens" in result.out


def test_compare_as_json_is_an_object_a_policy(cli: Cli) -> None:
    result = cli("run", "--compare", *TEXTS, *TINY, "--json", "--quiet")
    policies = [json.loads(line) for line in result.out.splitlines()]
    assert [policy["policy"] for policy in policies] == ["one at a time", "static", "continuous", "chunked"]
    one, static, continuous, chunked = (policy["totals"] for policy in policies)
    assert (
        one["waste"]["padded_tokens"]
        == continuous["waste"]["padded_tokens"]
        == 0
        < static["waste"]["padded_tokens"]
    )
    assert one["steps"] > continuous["steps"] == chunked["steps"]
    assert all(len(policy["requests"]) == 3 for policy in policies)
    assert policies[1]["most_rows"] == 3 * 33


def test_a_picture_of_a_run_as_svg(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", *TEXTS, *TINY, "--svg", "run.svg", "--quiet").code == 0
    svg = (tmp_path / "run.svg").read_text()
    assert svg.startswith("<svg")
    assert "tiny-random" in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    result = cli("run", "x", *TINY, "--svg", "no/such/run.svg", "--quiet")
    assert (result.code, len(result.err_lines)) == (2, 1)


def test_the_model_has_the_last_word_on_long_texts(cli: Cli) -> None:
    result = cli("run", "hello", *TINY, "--max-tokens", "9999", "--max-model-len", "20", "--json", "--quiet")
    answer = json.loads(result.out)
    assert len(answer["prompt_token_ids"]) + len(answer["token_ids"]) <= 20


def test_prompts_stand_anywhere_and_after_two_dashes_whatever_they_look_like(cli: Cli) -> None:
    result = cli(
        "run", "one", "--max-tokens", "1", "two", "--model", "tiny-random", "--json", "--", "--three", "-4"
    )
    assert [json.loads(line)["prompt"] for line in result.out.splitlines()] == ["one", "two", "--three", "-4"]


def test_version_and_no_command(cli: Cli) -> None:
    assert cli("--version").out == f"tinycb {__version__}\n"
    assert cli().out == cli("--help").out
    assert "examples:" in cli("--help").out


@pytest.mark.smollm2
def test_chat_on_the_real_model(cli: Cli) -> None:
    flags = ("--max-tokens", "8", "--quiet", "--num-blocks", "64")
    result = cli("run", "--chat", "What is the capital of France?", *flags)
    assert (result.code, result.out) == (0, "The capital of France is Paris.\n")


@pytest.mark.smollm2
def test_the_demo_prompts_are_eight_of_very_different_lengths() -> None:
    specs, problems = from_file(str(DEMO), {})
    assert not problems
    tokenizer = load("smollm2-135m").tokenizer
    assert tokenizer is not None
    lengths = [len(tokenizer.chat(spec.text or "")) for spec in specs]
    assert len(lengths) == 8
    assert max(lengths) > 15 * min(lengths)
    assert max(lengths) > 2 * EngineConfig().max_num_batched_tokens
    outputs = [spec.params.max_tokens for spec in specs]
    assert max(outputs) >= 4 * min(outputs)
    assert sum(outputs) <= 256  # so that the demo is over in under a minute
