"""What a recording scheduler hands over: references to vLLM's own objects, and a few numbers.

Attributes of vLLM's objects are read later, on another thread, and only such as vLLM no longer changes.
Imports neither vLLM nor torch. Next: `transcript.py`, which turns a `Step` into a record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Abort", "Arrival", "Chosen", "Event", "Notes", "Preemption", "Rules", "Step"]


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
class Notes:
    """What a step had besides tokens for those that run.

    tables: of those it admitted, with vLLM's block ids. head: of the queue, after the choice. last_hit: the
    request whose prefix was looked up last, and the blocks found.
    """

    events: list[Event] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    tables: dict[str, list[int]] = field(default_factory=dict)
    num_waiting: int = 0
    head: Any = None
    head_is_blocked: bool = False
    last_hit: tuple[Any, Any] | None = None


# vLLM's choice, who runs after it, free blocks after it, notes if there are any, when it began and ended.
# A plain tuple, as the next one: they are made for every step.
Chosen = tuple[Any, list[Any], int, Notes | None, float, float]

# A choice, what `update_from_output` gave back, when that began and ended, seconds that recording took, and
# the scheduled tokens of steps chosen since, whose results are still to come.
Step = tuple[Chosen, Mapping[int, Any], float, float, float, Collection[Mapping[str, int]]]


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
