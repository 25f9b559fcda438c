"""vLLM's own scheduler classes without a model: scripted tokens, and the asynchronous class a step ahead."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.adapters.conftest import QUIET
from tests.adapters.scripted_vllm import token
from tinycb.adapters import vllm_settings
from tinycb.replay import replay
from tinycb.tracing import TraceReader

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]


def record(python: str, kind: str, model: str, trace: Path) -> str:
    command = [python, "-m", "tests.adapters.scripted_vllm", kind, model]
    with vllm_settings.job_environment(str(trace)) as environment:
        environment["PYTHONPATH"] += os.pathsep + str(ROOT)
        environment["VLLM_LOGGING_LEVEL"] = "WARNING"
        done = subprocess.run(
            command, env=environment | QUIET, cwd=trace.parent, capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def asynchronous(vllm, smollm2, tmp_path_factory):
    trace = tmp_path_factory.mktemp("async") / "async.jsonl"
    record(vllm.python, "async", smollm2, trace)
    with TraceReader(trace) as reader:
        yield reader


def test_a_scripted_run_is_decided_alike(vllm, smollm2, tmp_path):
    trace = tmp_path / "sync.jsonl"
    record(vllm.python, "recording", smollm2, trace)
    assert replay(trace) is None
    with TraceReader(trace) as reader:
        reasons = {str(d.reason) for step in reader for d in step.decisions}
    assert {"preempted_for", "stop_token", "aborted", "max_tokens"} <= reasons
    assert "not_stated" not in reasons


def test_asynchronous_steps_have_their_tokens(asynchronous):
    lengths = {f"r{i}": 22 + i for i in range(6)}
    for step in asynchronous:
        for name, sampled in step.sampled.items():
            assert sampled == token(name, lengths[name])
            lengths[name] += 1
    finished = {name: reason for step in asynchronous for name, reason in step.finished.items()}
    assert finished == {"r0": "length", "r1": "stop", "r2": "length", "r4": "stop"}
    assert [name for step in asynchronous for name in step.aborted] == ["r3", "r5"]


def test_an_asynchronous_request_may_run_once_more_for_nothing(asynchronous):
    """Its end was not known when the next step was chosen: answer and blocks go back in that later step."""
    ended = {name: step.step for step in asynchronous for name in step.finished}
    returned = {name: step.step for step in asynchronous for name in step.returned}
    assert returned["r1"] == ended["r1"] + 1
    assert "r1" in asynchronous[returned["r1"]].scheduled
    assert "r1" not in asynchronous[returned["r1"]].sampled
    assert returned["r0"] == ended["r0"], "max_tokens is foreseen"


def test_asynchronous_states_keep_their_blocks_apart(asynchronous):
    for index in range(len(asynchronous)):
        state = asynchronous.state(index)
        held = Counter(n for request in state.requests.values() for n in set(request.block_table))
        assert set(held) <= set(range(asynchronous.num_blocks))
        packed = asynchronous[index].packed
        slots = packed.slot_mapping[packed.slot_mapping >= 0]
        assert len(set(slots.tolist())) == len(slots)
    assert not state.requests
