"""What a recording scheduler hands over: references to vLLM's own objects, and a few numbers.

Attributes of vLLM's objects are read later, on another thread, and only such as vLLM no longer changes.
Imports neither vLLM nor torch. Next: `transcript.py`, which turns a `Step` into a record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Abort", "Arrival", "Event", "Preemption", "Rules", "Step"]


class Arrival(NamedTuple):
    """A vLLM request that was queued."""

    request: Any


class Abort(NamedTuple):
    """A request that ended from outside: a client left, or a stop string was found in its text."""

    request_id: str
    num_output: int
    num_computed: int
    status: str


Event = Arrival | Abort


class Preemption(NamedTuple):
    """winner: whom the blocks were for, None if that was not to be seen."""

    request_id: str
    num_computed: int
    winner: str | None
    needs: int
    free: int


@dataclass(slots=True)
class Step:
    """One step as vLLM left it.

    output: vLLM's choice. tables: of those it admitted, with vLLM's block ids. running, num_waiting, head of
    the queue, num_free: after the choice. last_hit: the request whose prefix was looked up last, and the
    blocks found. result: what `update_from_output` gave back. later: the scheduled tokens of steps chosen
    since, whose results are still to come. spent: seconds that recording took. Times are of one clock.
    """

    output: Any
    tables: dict[str, list[int]]
    events: list[Event]
    preemptions: list[Preemption]
    running: list[Any]
    num_waiting: int
    head: Any
    head_is_blocked: bool
    last_hit: tuple[Any, Any] | None
    num_free: int
    start: float
    chosen: float
    result: Mapping[int, Any] = field(default_factory=dict)
    update_start: float = 0.0
    end: float = 0.0
    spent: float = 0.0
    later: Collection[Mapping[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a choice can be explained with. plain: first-come first-served, and nothing but text tokens."""

    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    prefix_caching: bool
    reserve_full_prompt: bool
    plain: bool = True
