"""Bad input gets one line that names it, with what would be right, and exit code 2; good input is served."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import TINY, Cli
from tinycb.commands import COMMANDS
from tinycb.tracing import TraceReader

FLAGS = [
    (["--block-size", "0"], "--block-size must be an integer from 1 to 1024, not 0"),
    (["--block-size", "x"], "--block-size must be an integer from 1 to 1024, not 'x'"),
    (["--block-size", "1.5"], "--block-size must be an integer from 1 to 1024, not 1.5"),
    (["--num-blocks", "0"], "--num-blocks must be an integer of at least 1, not 0"),
    (["--num-blocks", "-4"], "--num-blocks must be an integer of at least 1, not -4"),
    (["--max-num-seqs", "0"], "--max-num-seqs must be"),
    (["--max-num-batched-tokens", "nan"], "--max-num-batched-tokens must be"),
    (["--max-model-len", "0"], "--max-model-len must be an integer of at least 1, not 0"),
    (["--kv-cache-memory", "lots"], '--kv-cache-memory must be a positive size such as "512MiB"'),
    (["--kv-cache-memory", "-1"], "--kv-cache-memory must be a positive size"),
    (["--batching", "greedy"], "--batching must be one of 'static', 'continuous', 'chunked', not 'greedy'"),
    (["--attention", "flash"], "--attention must be one of 'mask', 'varlen', 'paged', not 'flash'"),
    (["--backend", "cuda"], "--backend must be one of"),
    (["--dtype", "int8"], "--dtype must be one of"),
    (["--device", "tpu"], "--device must be"),
    (["--max-tokens", "0"], "--max-tokens must be an integer of at least 1, not 0"),
    (["--max-tokens", "abc"], "--max-tokens must be an integer of at least 1, not 'abc'"),
    (["--temperature", "-1"], "--temperature must be a number in [0, 1e6], not -1"),
    (["--temperature", "nan"], "--temperature must be a number in [0, 1e6], not nan"),
    (["--top-k", "-1"], "--top-k must be"),
    (["--top-p", "0"], "--top-p must be a number in (0, 1], not 0"),
    (["--top-p", "inf"], "--top-p must be a number in (0, 1], not inf"),
    (["--seed", "-3"], "--seed must be an integer in [0, 2**64), not -3"),
    (["--seed", "1.0"], "--seed must be"),
    (["--stop", ""], "--stop must be"),
    (["--blok-size", "4"], "there is no --blok-size; did you mean --block-size?"),
    (["--max-num-seqs"], "--max-num-seqs needs a value after it"),
    (["--compare", "--batching", "static"], "--compare runs every policy: leave out --batching"),
    (["--prompts", "missing.txt"], "not both"),
    (["--trace", "no/such/folder/run.jsonl"], "there is no folder no/such/folder"),
    (["--trace", "."], "it is a folder"),
    (["--num-blocks", "99999999999"], "--num-blocks 99999999999 does not fit"),
    (["--kv-cache-memory", "1"], "--kv-cache-memory 1 bytes holds no block"),
    (["--max-model-len", "9999"], "--max-model-len 9999 is more than tiny-random can serve, 512"),
    (["--device", "cuda:99"], "cuda:99"),
    (["--chat"], "tiny-random has no chat template: leave out --chat"),
    (["--max-model-len", "2"], "the prompt has 5 tokens, --max-model-len is 2"),
    (["--num-blocks", "1", "--block-size", "2"], "the prompt has 5 tokens, all of the pool holds 2"),
]


@pytest.mark.parametrize(("flags", "message"), FLAGS, ids=[" ".join(flags) for flags, _ in FLAGS])
def test_a_bad_flag_is_one_line(cli: Cli, flags: list[str], message: str) -> None:
    given = [*TINY, *flags]
    if "--num-blocks" not in flags:
        del given[4:6]
    result = cli("run", "hello", *given, "--quiet")
    assert (result.code, result.out) == (2, "")
    assert len(result.err_lines) == 1, result.err
    assert result.err.startswith("tinycb run: ")
    assert message in result.err


COMMAND_LINES = [
    (["run"], "there is no prompt; give one"),
    (["run", *TINY, ""], "the prompt is empty; give at least one character"),
    (["run", *TINY, "a\udcffb"], "the prompt is not UTF-8 text"),
    (["run", "--prompts", "missing.txt"], "cannot read --prompts missing.txt: No such file"),
    (["run", "--prompts", "."], "cannot read --prompts .: Is a directory"),
    (["run", "--prompts", os.devnull], "holds no prompt"),
    (["run", *TINY, "-x"], "there is no -x; a prompt that begins with - goes after --"),
    (["runn"], "there is no command 'runn'; did you mean run?"),
    (["--verbose"], "there is no --verbose"),
    (["replay"], "TRACE"),
    (["replay", "missing.jsonl"], "missing.jsonl"),
    (["doctor", "now"], "there is no now"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMAND_LINES, ids=[" ".join(a) for a, _ in COMMAND_LINES])
def test_a_bad_command_line_is_one_line(cli: Cli, arguments: list[str], message: str) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert len(result.err_lines) == 1, result.err
    assert message in result.err


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "unknown model 'model'"),
        ({}, "has no config.json"),
        ({"config.json": "{"}, "is not a JSON object"),
        ({"config.json": json.dumps({"architectures": ["GPT2LMHeadModel"]})}, "architecture GPT2LMHeadModel"),
        ({"config.json": json.dumps({**LLAMA, "hidden_size": -1})}, "hidden_size"),
        ({"config.json": json.dumps(LLAMA)}, "safetensors"),
        (
            {"config.json": json.dumps(LLAMA), "model.safetensors": "\x10" + "\0" * 7 + "{}"},
            "model.safetensors",
        ),
    ],
)
def test_a_bad_model_is_one_line(
    cli: Cli, tmp_path: Path, files: dict[str, str] | None, message: str
) -> None:
    if files is not None:
        (tmp_path / "model").mkdir()
        for name, text in files.items():
            (tmp_path / "model" / name).write_text(text)
    result = cli("run", "hello", "--model", "model", "--quiet")
    assert (result.code, result.out) == (2, "")
    assert len(result.err_lines) == 1, result.err
    assert message in result.err


# ── files of prompts ──────────────────────────────────────────────────────────────────────────────────────

LINES = [
    ('{"prompt": "x"', "is not JSON"),
    ('{"prompt": "x", "max_token": 3}', "unknown field 'max_token'; did you mean 'max_tokens'?"),
    ('{"prompt": "x", "arrival": 3}', "unknown field 'arrival'"),
    ('{"prompt": "x", "temperature": NaN}', "temperature must be a number in [0, 1e6], not nan"),
    ('{"prompt": "x", "temperature": -0.5}', "temperature must be"),
    ('{"prompt": "x", "max_tokens": "5"}', "max_tokens must be an integer of at least 1, not '5'"),
    ('{"prompt": "x", "stop": 5}', "stop must be"),
    ('{"prompt": ""}', "prompt must be a text of at least one character"),
    ('{"prompt": 5}', "prompt must be a text of at least one character, not 5"),
    ('{"prompt": "\\ud800"}', "half of a surrogate pair"),
    ('{"prompt": "x", "id": "first"}', "the id 'first' is taken by prompts.jsonl:1"),
    ('{"prompt": "x", "id": 7}', "id must be a non-empty string, not 7"),
    ('{"prompt_token_ids": []}', "prompt_token_ids is empty"),
    ('{"prompt_token_ids": [1, "a"]}', "prompt_token_ids[1] must be a non-negative integer"),
    ('{"prompt_token_ids": "abc"}', "prompt_token_ids must be a list"),
    ('{"prompt_token_ids": [300]}', "prompt_token_ids holds 300"),
    ('{"prompt": "x", "prompt_token_ids": [1]}', 'give either "prompt" or "prompt_token_ids"'),
    ("{}", 'give either "prompt" or "prompt_token_ids"'),
    ("[1, 2]", "must be a JSON object"),
    ("[" * 100_000, "is not JSON: maximum recursion depth"),
    ('{"prompt": "x", "temperature": 1' + "0" * 400 + "}", "temperature must be a number in [0, 1e6]"),
    (json.dumps({"prompt": "x" * 600}), "the prompt has 600 tokens, --max-model-len is 512"),
]


@pytest.mark.parametrize(("line", "message"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_bad_line_is_named_and_the_others_are_served(
    cli: Cli, tmp_path: Path, line: str, message: str
) -> None:
    lines = ['{"prompt": "hello", "id": "first"}', "", line, '{"prompt_token_ids": [5, 6], "id": "last"}']
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    result = cli("run", "--prompts", "prompts.jsonl", *TINY, "--quiet", "--json", "--trace", "run.jsonl")
    assert result.code == 2
    assert len(result.err_lines) == 1, result.err
    assert result.err.startswith("tinycb run: prompts.jsonl:3: ")
    assert message in result.err
    served = [json.loads(text) for text in result.out.splitlines()]
    assert [(answer["id"], len(answer["token_ids"])) for answer in served] == [("first", 4), ("last", 4)]
    with TraceReader(tmp_path / "run.jsonl") as reader:
        assert not reader.truncated
        assert {name for record in reader for name in record.finished} == {"first", "last"}


def test_a_line_that_is_not_utf8_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_bytes(b"\xef\xbb\xbfhello\n\nb\xff\nbye\n")
    result = cli("run", "--prompts", "prompts.txt", *TINY, "--quiet", "--json")
    assert result.code == 2
    assert result.err == "tinycb run: prompts.txt:3: is not UTF-8 text\n"
    assert [json.loads(line)["prompt"] for line in result.out.splitlines()] == ["hello", "bye"]


def test_when_no_line_is_good_nothing_is_loaded(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("{}\n[]\n")
    result = cli("run", "--prompts", "prompts.jsonl", "--model", "nowhere")
    assert (result.code, result.out, len(result.err_lines)) == (2, "", 2)
    assert "nowhere" not in result.err


# ── trouble on the way ────────────────────────────────────────────────────────────────────────────────────


class _SmallDisk(io.FileIO):
    room = 6000

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data) or 0


def test_a_full_disk_ends_the_trace_and_nothing_else(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tinycb.tracing.writer.io.FileIO", _SmallDisk)
    result = cli(
        "run", "hello", "world", *TINY, "--max-tokens", "50", "--trace", "run.jsonl", "--json", "--quiet"
    )
    assert result.code == 2
    assert len(result.err_lines) == 1, result.err
    assert "cannot write the trace run.jsonl: No space left on device" in result.err
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert all(answer["finish_reason"] in ("length", "stop") for answer in answers)
    assert len(answers) == 2
    with TraceReader(tmp_path / "run.jsonl") as reader:
        assert len(reader) > 0


def test_a_failing_forward_is_one_line_and_keeps_the_answers(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tinycb.executors import LlamaExecutor

    execute, calls = LlamaExecutor.execute, []

    def failing(self: LlamaExecutor, step: object) -> object:
        calls.append(step)
        if len(calls) > 12:
            raise RuntimeError("the machine\nis on fire")
        return execute(self, step)  # type: ignore[arg-type]

    monkeypatch.setattr(LlamaExecutor, "execute", failing)
    lines = [
        '{"prompt": "short", "max_tokens": 2}',
        '{"prompt": "long", "max_tokens": 100, "ignore_eos": true}',
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    result = cli("run", "--prompts", "p.jsonl", *TINY, "--json", "--quiet", "--trace", "run.jsonl")
    assert result.code == 1
    assert len(result.err_lines) == 1, result.err
    assert "RuntimeError: the machine is on fire" in result.err
    reasons = [json.loads(line)["finish_reason"] for line in result.out.splitlines()]
    assert reasons == ["length", "abort"]
    with TraceReader(tmp_path / "run.jsonl") as reader:
        assert any(record.error for record in reader)


def test_a_surprise_is_one_line_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody\nexpected this")

    monkeypatch.setattr("tinycb.commands.loading.load_model", fail)
    result = cli("run", "hello")
    assert result.code == 1
    assert result.err == (
        "tinycb run: unexpected ZeroDivisionError: nobody expected this (TINYCB_TRACEBACK=1 shows where)\n"
    )


def test_every_command_has_help_with_examples(cli: Cli) -> None:
    for command in COMMANDS:
        result = cli(command, "--help")
        assert result.code == 0
        assert "usage: tinycb" in result.out
        assert "example" in result.out or "exit code" in result.out
