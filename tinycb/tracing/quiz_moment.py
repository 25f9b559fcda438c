"""What is known before a step, and the step itself: all that a question may be made of.

Known are the requests and blocks as the step before left them, and what came or was given up since. The
record of the step is for the answer. Next: `quiz_question.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tinycb.tracing.pool_state import PoolState, RequestState
from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["Moment", "Waiter"]

LOOKED_THROUGH = 8  # places of the queue
LISTED = 4  # requests and free blocks that are named one by one; of requests, twice as many if that is all


class Waiter(NamedTuple):
    """Somebody in the queue. num_tokens: to be computed. came_back: it was preempted."""

    request_id: str
    num_tokens: int
    came_back: bool


@dataclass(frozen=True)
class Moment:
    """index: of the step in its source. before: the state that the step before left behind.

    config: of the trace's header. limits: id → max_tokens. prompts: of the latest arrivals, to compare with.
    """

    index: int
    record: StepRecord
    before: PoolState
    config: Mapping[str, Any]
    limits: Mapping[str, int] = field(default_factory=dict)
    prompts: Sequence[tuple[str, Sequence[int]]] = ()

    @property
    def block_size(self) -> int:
        return self.before.block_size

    @property
    def budget(self) -> int:
        return int(self.config.get("max_num_batched_tokens") or 0)

    @property
    def max_num_seqs(self) -> int:
        return int(self.config.get("max_num_seqs") or 0)

    @property
    def batching(self) -> str:
        return str(self.config.get("batching", ""))

    @cached_property
    def running(self) -> list[str]:
        """Who has a place in the batch, in its order, those left out that were given up."""
        gone = set(self.record.aborted)
        return [name for name in self.before.running if name not in gone]

    @cached_property
    def arrivals(self) -> list[NewRequest]:
        return list(self.record.new_requests)

    @cached_property
    def queue(self) -> list[Waiter]:
        """The first of those that wait, with those that just came."""
        gone, waiting = set(self.record.aborted), self.before.waiting
        found = []
        for place in range(min(len(waiting), LOOKED_THROUGH)):
            request = waiting[place]
            if request.request_id not in gone:
                came_back = request.request_id in self.before.requests
                found.append(Waiter(request.request_id, request.num_tokens, came_back))
        room = LOOKED_THROUGH - min(len(waiting), LOOKED_THROUGH)
        new = [Waiter(n.request_id, len(n.prompt_token_ids), False) for n in self.arrivals[:room]]
        return found + new

    @cached_property
    def queue_length(self) -> int:
        gone = sum(name not in self.before.running for name in self.record.aborted)
        return max(len(self.queue), len(self.before.waiting) - gone + len(self.arrivals))

    @cached_property
    def free(self) -> frozenset[int]:
        """Blocks that nobody holds."""
        gone, held = set(self.record.aborted), set[int]()
        for name, request in self.before.requests.items():
            if name not in gone:
                held.update(request.block_table)
        return frozenset(range(self.before.num_blocks)) - held

    def request(self, name: str) -> RequestState | None:
        """One that has run already."""
        return self.before.requests.get(name)

    def num_tokens(self, name: str) -> int:
        """Tokens it has, computed or not; 0 if it is not known here."""
        request = self.request(name)
        if request is not None:
            return request.num_tokens
        return next((waiter.num_tokens for waiter in self.queue if waiter.request_id == name), 0)

    def num_computed(self, name: str) -> int:
        request = self.request(name)
        return 0 if request is None else request.num_computed_tokens

    @cached_property
    def known(self) -> list[str]:
        """What somebody must know who is asked, a line each."""
        lines = []
        if self.arrivals:
            lines.append(f"comes: {_listed([_comes(new) for new in self.arrivals])}")
        if self.record.aborted:
            lines.append(f"is given up: {_listed(self.record.aborted)}")
        lines.append(f"runs: {_listed([self._runs(name) for name in self.running]) or 'nobody'}")
        waits = [_waits(waiter) for waiter in self.queue]
        lines.append(f"queue: {_listed(waits, self.queue_length) or 'empty'}")
        free = len(self.free)
        which = f" ({', '.join(map(str, sorted(self.free)))})" if 0 < free <= LISTED else ""
        text = f"free: {free} of {self.before.num_blocks} blocks of {self.block_size}{which}"
        if self.batching not in ("static", "continuous"):
            text += f" · budget {self.budget}"
        lines.append(f"{text} · at most {self.max_num_seqs} run" if self.max_num_seqs else text)
        return lines

    def _runs(self, name: str) -> str:
        request = self.before.requests[name]
        computed, total = request.num_computed_tokens, request.num_tokens
        if total - computed > 1:
            return f"{name} {computed} of {_tokens(total)}"
        output = total - request.num_prompt_tokens
        limit = f"/{self.limits[name]}" if name in self.limits else ""
        return f"{name} {_tokens(total)} (output {output}{limit})"


def _comes(new: NewRequest) -> str:
    return f"{new.request_id} with a prompt of {_tokens(len(new.prompt_token_ids))}"


def _waits(waiter: Waiter) -> str:
    return f"{waiter.request_id} {_tokens(waiter.num_tokens)}{' again' if waiter.came_back else ''}"


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"


def _listed(parts: Sequence[str], total: int | None = None) -> str:
    """The first few, and how many more there are."""
    total = len(parts) if total is None else total
    shown = parts[: 2 * LISTED if total <= 2 * LISTED else LISTED]
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
