"""The tour, run once."""

import asyncio
from pathlib import Path

import pytest

from tinycb.tracing import TraceReader
from tinycb.tui.session import Session
from tinycb.workloads.tour import write_tour


@pytest.fixture(scope="session")
def tours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tours")
    return {name: write_tour(folder, name) for name in ("chunked", "continuous", "static")}


@pytest.fixture(scope="session")
def tour(tours: dict[str, Path]) -> Path:
    return tours["chunked"]


@pytest.fixture
def session(tour: Path):
    with TraceReader(tour) as reader:
        yield Session(reader)


@pytest.fixture
def drive():
    """Run a coroutine to its end."""
    return asyncio.run
