"""Every launch configuration of the Triton kernels compiles for sm_90, spills no register, and fits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .batches import Backend

ROOT = Path(__file__).parents[2]


def compile_for_sm90(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process without Triton's interpreter. Minutes at first, seconds from Triton's cache."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.gpu_compile", *arguments]
    return subprocess.run(command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True)


@pytest.mark.slow
def test_every_configuration_compiles_for_sm_90(triton_backend: Backend) -> None:
    done = compile_for_sm90()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_decode_and_a_prompt_of_llama_compile_for_sm_90(triton_backend: Backend) -> None:
    done = compile_for_sm90("paged bf16 D=128 G=4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kernels, 0 with spills" in done.stdout


def test_an_interpreted_kernel_is_not_taken_for_a_compiled_one() -> None:
    done = compile_for_sm90(TRITON_INTERPRET="1")
    assert done.returncode == 2
    assert "an interpreted kernel is not compiled" in done.stderr
