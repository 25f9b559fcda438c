"""Runs vLLM once for all live tests, in the interpreter that VLLM_PYTHON names."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.live_workloads import WORKLOADS
from tinycb.adapters import vllm_settings

QUIET = {  # other work on the machine makes spinning threads wait for one another
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@pytest.fixture(scope="session")
def vllm() -> vllm_settings.Installation:
    """Skips, with the reason, where there is no vLLM."""
    try:
        return vllm_settings.find()
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2() -> str:
    from tinycb.model.checkpoint import locate

    try:
        return str(locate("smollm2-135m", lambda message: None)[0])
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def live_runs(
    vllm: vllm_settings.Installation, smollm2: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, dict[str, Any]]]:
    """name → a live run's trace, and what vLLM answered; kept in TINYCB_VLLM_TRACES if that is a folder."""
    folder = Path(os.environ.get("TINYCB_VLLM_TRACES") or tmp_path_factory.mktemp("vllm"))
    traces = {name: folder / f"{name.replace(' ', '-')}.jsonl" for name in WORKLOADS}
    results = folder / "results.jsonl"
    if not results.exists():
        jobs = [
            workload.job(
                smollm2,
                str(traces[name]),
                vllm_settings.vllm_arguments(workload.config, is_cpu=vllm.is_cpu)
                | {"enforce_eager": True, "disable_log_stats": True},
            )
            for name, workload in WORKLOADS.items()
        ]
        (folder / "jobs.json").write_text(json.dumps(jobs))
        command = [vllm.python, "-m", "tinycb.adapters.vllm_job", str(folder / "jobs.json"), str(results)]
        with vllm_settings.job_environment() as environment:
            done = subprocess.run(
                command, env={**environment, **QUIET}, capture_output=True, text=True, timeout=900
            )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:] + results.read_text()[-1000:]
    answers = [json.loads(line) for line in results.read_text().splitlines()]
    return {name: (traces[name], answer) for name, answer in zip(WORKLOADS, answers, strict=True)}
