"""One system, once, in a process of its own: its job written, its lines read as they come."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.speed.systems import ROOT, System
from benchmarks.speed.workloads import Work

__all__ = ["ServeError", "serve"]


class ServeError(RuntimeError):
    """A system that did not serve, with its last words."""


def serve(
    system: System,
    model: Path,
    dtype: str,
    works: Mapping[str, Work],
    on_result: Callable[[str, dict[str, Any]], None],
    *,
    timeout: float,
) -> dict[str, str]:
    """Serve every workload in turn. Returns the versions that the system says it has.

    on_result: told of each workload, with its "seconds" and "tokens", as it is done. timeout: seconds for
    all of them. Raises ServeError if the system fails, takes too long or leaves a workload out.
    """
    job = {
        "model": str(model),
        "dtype": dtype,
        "settings": dict(system.settings),
        "works": {name: asdict(work) for name, work in works.items()},
    }
    versions: dict[str, str] = {}
    missing, start = set(works), time.monotonic()
    with TemporaryDirectory(prefix="tinycb-") as folder:
        path, log = Path(folder, "job.json"), Path(folder, "log")
        path.write_text(json.dumps(job))
        with log.open("w") as words, _process([*system.command, str(path)], words, timeout) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith(('{"versions"', '{"workload"')):
                    continue  # a library's own chatter
                result = json.loads(line)
                versions |= result.get("versions", {})
                if "workload" in result:
                    missing.discard(result["workload"])
                    on_result(result.pop("workload"), result)
            code = process.wait()
        if code or missing:
            said = log.read_text(errors="replace").strip().splitlines()
            why = (said or ["no output"])[-1]
            if code == -signal.SIGKILL:
                late = time.monotonic() - start >= timeout
                why = f"it took over {timeout:.0f} s" if late else "it was killed; was there memory for it?"
            raise ServeError(f"{system.title} ({dtype}) failed: {why[:300]}")
    return versions


@contextlib.contextmanager
def _process(command: list[str], words: Any, timeout: float) -> Iterator[subprocess.Popen[str]]:
    """In a group of its own, which ends with this block or after `timeout` seconds, its workers included."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=words, text=True, start_new_session=True
    )
    timer = threading.Timer(timeout, _end, (process,))
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        _end(process)
        process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
