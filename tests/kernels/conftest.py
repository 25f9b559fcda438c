"""The backends, as a fixture: each test that asks for `backend` runs once for each one, where it can run.

Triton runs compiled where there is a GPU and interpreted where there is none (see tests/conftest.py).
"""

import importlib.metadata
import importlib.util

import numpy as np
import pytest
import torch

from .batches import Backend

HAS_GPU = torch.cuda.is_available()


def version(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in importlib.metadata.version(package).split(".")[:2])


def why_not(name: str) -> str:
    """Why a backend cannot run here, or "" if it can."""
    if name != "torch" and importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    numpy_is_strict = np.lib.NumpyVersion(np.__version__) >= "2.4.0"
    if name == "triton" and not HAS_GPU and version("triton") < (3, 7) and numpy_is_strict:
        return "Triton before 3.7 cannot interpret `range` with a tensor bound under NumPy 2.4 or newer"
    return ""


def make(name: str) -> Backend:
    if reason := why_not(name):
        pytest.skip(reason)
    on_gpu = HAS_GPU and name != "numba"
    return Backend(name, torch.device("cuda" if on_gpu else "cpu"), name == "triton" and not on_gpu)


@pytest.fixture(scope="session", params=["torch", "numba", "triton"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return make(request.param)


@pytest.fixture(scope="session")
def numba_backend() -> Backend:
    return make("numba")


@pytest.fixture(scope="session")
def triton_backend() -> Backend:
    return make("triton")
