"""`tinycb bench --engine vllm` on live vLLM: counts and decisions as here, several workers, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.conftest import QUIET
from tinycb.replay import replay
from tinycb.tracing import TraceReader
from tinycb.tracing.diff import compare

pytestmark = [pytest.mark.vllm, pytest.mark.smollm2]
FLAGS = (
    "--block-size",
    "32",
    "--num-blocks",
    "7",
    "--max-model-len",
    "160",
    "--max-num-batched-tokens",
    "64",
)
FLAGS += ("--max-num-seqs", "4", "--dtype", "float32", "--quiet")
LENGTHS = ((40, 9), (90, 12), (12, 7), (33, 10), (21, 11))  # prompt and output; they crowd the seven blocks


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tinycb", "bench", *arguments],
        env=os.environ | QUIET,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def bench(*arguments: str) -> tuple[int, str, str]:
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=900)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def crowd(vllm, smollm2, tmp_path_factory) -> Path:
    """A workload whose requests come all at once, so that no clock decides who meets whom."""
    path = tmp_path_factory.mktemp("bench") / "crowd.jsonl"
    lines = [{"arrival_time": 0, "prompt_tokens": p, "output_tokens": o} for p, o in LENGTHS]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture(scope="module")
def on_vllm(crowd) -> tuple[Path, dict[str, Any]]:
    trace = crowd.with_name("theirs.jsonl")
    code, out, err = bench(str(crowd), "--engine", "vllm", "--trace", str(trace), "--json", *FLAGS)
    assert code == 0, err
    return trace, json.loads(out)


def tokens(path: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    with TraceReader(path) as reader:
        for record in reader:
            for name, token in record.sampled.items():
                found.setdefault(name, []).append(token)
    return found


def test_both_engines_count_and_decide_the_same(crowd, on_vllm):
    ours = crowd.with_name("ours.jsonl")
    code, out, err = bench(str(crowd), "--trace", str(ours), "--json", *FLAGS)
    assert code == 0, err
    here, there = json.loads(out), on_vllm[1]
    assert here["exact"] == there["exact"]
    assert here["measured"].keys() == there["measured"].keys()
    assert there["policy"].startswith("vLLM ")
    with TraceReader(ours) as one, TraceReader(on_vllm[0]) as other:
        result = compare(one, other, blocks="exact", reasons=True)
    assert result.is_equal, result.parting or result.token_difference
    assert tokens(ours) == tokens(on_vllm[0])


def test_arrivals_are_waited_for_and_what_vllm_refuses_is_told(crowd):
    work, trace = crowd.with_name("times.jsonl"), crowd.with_name("times-trace.jsonl")
    sizes = ((0.0, 9), (0.5, 400), (2.5, 9))
    lines = [{"arrival_time": at, "prompt_tokens": n, "output_tokens": 3} for at, n in sizes]
    work.write_text("\n".join(map(json.dumps, lines)))
    code, out, err = bench(str(work), "--engine", "vllm", "--trace", str(trace), *FLAGS)
    assert code == 2
    assert "times.jsonl line 2: " in err
    assert "your prompt contains 400 input tokens" in err
    assert " ".join(out.split("requests answered")[1].split()[:3]) == "2 refused 1"
    with TraceReader(trace) as reader:
        came = {new.request_id: new.arrival_time for record in reader for new in record.new_requests}
        first, second = came.values()
        assert second - first == pytest.approx(2.5, abs=0.01)
        assert reader[3].time_start >= second - 0.01
        assert all(record.scheduled for record in reader), "nothing is recorded while nobody is there"


@pytest.mark.slow
def test_three_tensor_parallel_workers_decide_and_say_the_same(crowd, on_vllm):
    trace = crowd.with_name("tensor.jsonl")
    arguments = ("--engine", "vllm", "--tensor-parallel-size", "3", "--trace", str(trace), "--json", *FLAGS)
    code, out, err = bench(str(crowd), *arguments)
    assert code == 0, err
    assert json.loads(out)["exact"] == on_vllm[1]["exact"]
    assert replay(trace) is None
    with TraceReader(trace) as one, TraceReader(on_vllm[0]) as other:
        assert one.header["vllm"]["tensor_parallel_size"] == 3
        result = compare(one, other, blocks="exact", reasons=True)
    assert result.is_equal, result.parting or result.token_difference


@pytest.mark.slow
def test_two_pipeline_stages_are_recorded_with_steps_in_flight(crowd, on_vllm):
    trace = crowd.with_name("pipeline.jsonl")
    arguments = ("--engine", "vllm", "--pipeline-parallel-size", "2", "--trace", str(trace), *FLAGS)
    code, _, err = bench(str(crowd), *arguments, "--distributed-executor-backend", "mp")
    assert code == 0, err
    assert tokens(trace) == tokens(on_vllm[0])
    with TraceReader(trace) as reader:
        assert reader.header["vllm"]["pipeline_parallel_size"] == 2
        decisions = [decision for record in reader for decision in record.decisions]
        assert all(record.scheduled for record in reader), "a step with nobody to choose is none"
        for index in range(len(reader)):
            reader.state(index)
    reasons = {str(decision.reason) for decision in decisions}
    assert "in_flight" in reasons
    assert "not_stated" not in reasons


def test_what_a_platform_cannot_split_is_passed_on_in_a_line(crowd):
    code, out, err = bench(str(crowd), "--engine", "vllm", "--tensor-parallel-size", "2", *FLAGS)
    assert code == 1
    assert out == ""
    line = "vLLM: Total number of attention heads (9) must be divisible by tensor parallel size (2)."
    assert err.splitlines() == [f"tinycb bench: {line}"]


def test_ctrl_c_keeps_what_was_answered(crowd):
    work, trace = crowd.with_name("long.jsonl"), crowd.with_name("long-trace.jsonl")
    lines = [{"arrival_time": t, "prompt_tokens": 9, "output_tokens": 5} for t in (0, 600)]
    work.write_text("\n".join(map(json.dumps, lines)))
    process = start(str(work), "--engine", "vllm", "--trace", str(trace), *FLAGS)
    try:
        end = time.monotonic() + 300
        while not (trace.exists() and trace.read_text().count("\n") > 5):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted; the table holds what was served until then" in err
    assert out.split("requests answered")[1].split()[0] == "1"
    assert replay(trace) is None
