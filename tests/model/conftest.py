"""Fixtures of the model's tests."""

import pytest
from model_driver import load_or_skip

from tinycb.model.checkpoint import LoadedModel


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load_or_skip("tiny-random")


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    return load_or_skip("smollm2-135m")
