"""Runs one job on vLLM, in a process of the interpreter that has it, and brings its answers and trace back.

The job is `tinycb.adapters.vllm_job`'s. Ctrl-C lets its step end, and keeps what was answered; a second one
ends it at once. Next: `vllm_engine.py` and `vllm_bench.py`, which print what came of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tinycb.commands.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError, one_line
from tinycb.commands.serving import StopSwitch
from tinycb.commands.vllm_flags import VllmPlan

__all__ = ["VllmRun", "serve"]

_PATIENCE = 20.0  # seconds that a job may take to end after Ctrl-C


@dataclass(frozen=True, slots=True)
class VllmRun:
    """answers: an object each: id, prompt_token_ids, token_ids, text, finish_reason; or id and error."""

    answers: list[dict[str, Any]]
    interrupted: bool


def serve(
    plan: VllmPlan,
    requests: Sequence[Mapping[str, Any]],
    trace: Path,
    *,
    chat: bool = False,
    final_only: bool = False,
) -> VllmRun:
    """Run requests on vLLM, recorded in `trace`. requests, final_only: as the job takes them.

    Raises CommandError in one line if vLLM does not run them, or leaves no trace. What vLLM itself prints is
    shown if TINYCB_TRACEBACK is set.
    """
    from tinycb.adapters.vllm_settings import cpu_worker_variables, job_environment

    job = {
        "model": plan.model,
        "arguments": plan.arguments,
        "trace": str(trace.absolute()),
        "chat": chat,
        "final_only": final_only,
        "requests": list(requests),
    }
    before = _written(trace)
    with TemporaryDirectory(prefix="tinycb-") as folder, job_environment() as environment:
        environment.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would take the place of --kv-cache-memory
        if plan.vllm.is_cpu and plan.num_workers > 1:
            environment = cpu_worker_variables(plan.num_workers) | environment
        jobs, results, log = (Path(folder, name) for name in ("jobs.json", "results.jsonl", "log"))
        jobs.write_text(json.dumps([job]), encoding="utf-8")
        command = [plan.vllm.python, "-m", "tinycb.adapters.vllm_job", str(jobs), str(results)]
        show = bool(os.environ.get("TINYCB_TRACEBACK"))
        with (
            log.open("wb") as output,
            StopSwitch() as switch,
            _process(command, environment, sys.stderr.fileno() if show else output) as process,
        ):
            _wait(process, switch)
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if not lines:
        if switch.is_set:
            raise CommandError("interrupted before vLLM served anything", EXIT_INTERRUPTED)
        raise _failed(plan, f" did not start: {said[-1] if said else 'no output'}")
    result = json.loads(lines[0])
    if "error" in result:
        raise _failed(plan, f": {result['error']}")
    if _written(trace) == before:
        if result["interrupted"]:
            raise CommandError("interrupted before vLLM served anything", EXIT_INTERRUPTED)
        why = next(
            (line.partition("tinycb records nothing")[2] for line in said if "tinycb records" in line), ""
        )
        raise _failed(plan, f" served, but left no trace in {trace}{why}")
    return VllmRun(result["outputs"], result["interrupted"])


def _written(trace: Path) -> int | None:
    """When the file was last written; None if there is none."""
    return trace.stat().st_mtime_ns if trace.exists() else None


def _failed(plan: VllmPlan, what: str) -> CommandError:
    note = f" ({plan.vllm.remark})" if plan.vllm.remark else ""
    return CommandError(one_line(f"vLLM{what}") + note, EXIT_FAILED)


def _wait(process: subprocess.Popen[bytes], switch: StopSwitch) -> None:
    """Until it ends; after Ctrl-C it is asked to, and not waited for longer than is decent."""
    deadline: float | None = None
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
            return
        if deadline is not None and time.monotonic() > deadline:
            return
        if switch.is_set and deadline is None:
            process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + _PATIENCE


@contextlib.contextmanager
def _process(
    command: Sequence[str], environment: Mapping[str, str], output: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """In a group of its own, so that its workers end with it, however this command ends."""
    process = subprocess.Popen(
        command, env=dict(environment), stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield process
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
