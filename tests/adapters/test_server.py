"""vLLM's server, recorded: the engine is in a process of its own, and is stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.adapters.conftest import QUIET
from tinycb.adapters import vllm_settings
from tinycb.replay import replay
from tinycb.tracing import TraceReader

pytestmark = pytest.mark.vllm


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, prompt: str, max_tokens: int, answers: list[str]) -> None:
    body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answers.append(json.load(response)["choices"][0]["text"])


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError("the server did not come up")


def test_a_server_is_recorded_and_opens(vllm, smollm2, tmp_path):
    port, trace, log = free_port(), tmp_path / "served.jsonl", tmp_path / "log"
    command = [
        *(vllm.python, "-m", "vllm.entrypoints.openai.api_server", "--model", smollm2, "--port", str(port)),
        *("--served-model-name", "m", "--dtype", "float32", "--enforce-eager", "--no-async-scheduling"),
        *("--scheduler-cls", "tinycb.adapters.vllm.RecordingScheduler", "--block-size", "32"),
        *("--max-model-len", "256", "--max-num-seqs", "2", "--max-num-batched-tokens", "64"),
        *("--host", "127.0.0.1"),
    ]
    with vllm_settings.job_environment(str(trace)) as environment, log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment | QUIET, stdout=output, stderr=output, start_new_session=True
        )
        try:
            wait_for(port, process)
            answers: list[str] = []
            threads = [
                threading.Thread(target=ask, args=(port, f"Once upon a time there were {n}", 6 + n, answers))
                for n in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(0.2)
            with TraceReader(trace) as reader:  # flushed while the server lives
                assert sum(len(step.returned) for step in reader) == 4
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert len(answers) == 4
    assert replay(trace) is None
    shown = subprocess.run(
        [sys.executable, "-m", "tinycb", "show", str(trace)], capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
