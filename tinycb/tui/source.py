"""Where the screen gets its steps from: anything that gives records and states by index.

`tinycb.tracing.TraceReader` is one, of a finished file as of one that is being written. A run that goes on
also has a `LiveRun`: what the screen may ask of whoever drives the engine, which it never sees.

Next: `snapshot.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tinycb.tracing.pool_state import PoolState
from tinycb.tracing.records import StepRecord

__all__ = ["LiveRun", "Source"]


class Source(Protocol):
    """A sequence of records, each with the state after it. `steps[i]` is the number of the i-th."""

    block_size: int
    num_blocks: int

    @property
    def header(self) -> Mapping[str, Any]: ...

    @property
    def truncated(self) -> bool: ...

    @property
    def steps(self) -> range: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> StepRecord: ...

    def __iter__(self) -> Iterator[StepRecord]: ...

    def state(self, index: int) -> PoolState: ...

    def refresh(self) -> int:
        """How many steps are new since the last look."""
        ...


class LiveRun(Protocol):
    """A run in another thread. Every method returns at once; what comes of it is seen in the source.

    is_over: no step will follow. error: why it ended early, in one line.
    """

    @property
    def is_paused(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def error(self) -> str | None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def step(self) -> None:
        """Run one step, and pause."""
        ...
