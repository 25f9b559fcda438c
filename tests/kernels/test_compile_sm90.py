"""Every launch configuration of the Triton kernels compiles for sm_90, spills no register, and fits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .batches import Backend


@pytest.mark.slow
def test_every_configuration_compiles_for_sm_90(triton_backend: Backend) -> None:
    """In a process without Triton's interpreter. Minutes at first, seconds from Triton's cache."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("compile_sm90.py")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
