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


STEPS = """
import torch
from benchmarks.gpu_compile import captured
from tinycb_kernels.triton_paged import paged_triton
from tinycb_kernels.triton_plan import plan_paged

q, cache = torch.empty(40, 4, 64, dtype=torch.bfloat16), torch.empty(4, 16, 2, 64, dtype=torch.bfloat16)

def kernel(q_lens, seq_len, max_blocks):
    starts = torch.tensor([0, *q_lens]).cumsum(0).to(torch.int32)
    lens = torch.full((len(q_lens),), seq_len, dtype=torch.int32)
    plan = plan_paged(
        starts, lens, num_heads=4, num_kv_heads=2, head_dim=64, dtype=q.dtype, device="cpu"
    )
    table, rows = torch.empty(len(q_lens), max_blocks, dtype=torch.int32), q[: sum(q_lens)]
    out = torch.empty_like(rows)
    return captured(lambda: paged_triton(rows, cache, cache, table, starts, lens, 0.1, out, plan))

decodes = [([1], 10, 1), ([1] * 3, 10, 5), ([1] * 16, 700, 48), ([1, 2], 30, 16)]
mixed = [([30], 30, 16), ([1, 20, 1], 700, 1), ([39], 5000, 333)]
print(len({id(kernel(*step)) for step in decodes}), len({id(kernel(*step)) for step in mixed}))
"""


def test_no_step_compiles_a_kernel_that_an_earlier_one_has(triton_backend: Backend) -> None:
    """Whatever the number of requests, lengths and blocks: Triton compiles anew when a number that it has
    looked at becomes 1, or a multiple of 16."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", STEPS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "1"], done.stdout + done.stderr
