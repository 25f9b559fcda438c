"""The state after a step, for a screen: each request with its tokens and blocks, each block with its owners.

Frozen, and cheap to make: prompts and older outputs are read from the file when somebody looks at them.
`TraceReader.state` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

from tinycb.request import RequestStatus

__all__ = ["BlockState", "LazySequence", "PoolState", "RequestState"]

T = TypeVar("T")


class LazySequence(Sequence[T], Generic[T]):
    """A list whose end is at hand, and whose beginning is loaded when somebody asks for it.

    head: how many values are not at hand. tail: the values after them, of which `num_tail` count; it may grow
    at its end. load: gives the head.
    """

    def __init__(self, head: int, tail: list[T], num_tail: int, load: Callable[[], list[T]]) -> None:
        self._head = head
        self._tail = tail
        self._length = head + num_tail
        self._load = load
        self._all: list[T] | None = None

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, stride = index.indices(self._length)
            if stride == 1 and start >= self._head:
                return self._tail[start - self._head : max(stop, start) - self._head]
            return self._whole()[index]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"index {index} of {self._length} values")
        return self._tail[position - self._head] if position >= self._head else self._whole()[position]

    def __iter__(self) -> Iterator[T]:
        return iter(self._whole())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and self._whole() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._whole())

    def _whole(self) -> list[T]:
        if self._all is None:
            self._all = self._load() + self._tail[: self._length - self._head]
        return self._all


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request after a step. token_ids: prompt and output. texts: of each, "" without a tokenizer."""

    request_id: str
    status: RequestStatus
    num_prompt_tokens: int
    num_computed_tokens: int
    token_ids: Sequence[int]
    texts: Sequence[str]
    block_table: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block after a step. owners: the requests whose tables hold it. cached: it offers a prefix."""

    block_id: int
    owners: tuple[str, ...]
    cached: bool

    @property
    def ref_count(self) -> int:
        return len(self.owners)


@dataclass(frozen=True)
class PoolState:
    """All requests and all blocks after step `step`, when those that finished in it have been let go.

    requests: those that have run and still live, by id: running, preempted, or finished and held by a static
    batch. running: their ids in batch order. waiting: the queue, its head first: preempted ones, then those
    that never ran, in the order in which they came. It may be long: each is read when it is asked for.
    """

    step: int
    block_size: int
    num_blocks: int
    requests: Mapping[str, RequestState]
    running: tuple[str, ...]
    waiting: Sequence[RequestState]
    cached: frozenset[int] = field(repr=False)

    @cached_property
    def blocks(self) -> tuple[BlockState, ...]:
        owners: list[list[str]] = [[] for _ in range(self.num_blocks)]
        for name, request in self.requests.items():
            for block_id in request.block_table:
                owners[block_id].append(name)
        return tuple(BlockState(i, tuple(names), i in self.cached) for i, names in enumerate(owners))

    @cached_property
    def free(self) -> frozenset[int]:
        """Blocks that nobody holds; some may still offer a prefix."""
        held: set[int] = set()
        for request in self.requests.values():
            held.update(request.block_table)
        return frozenset(range(self.num_blocks)) - held

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)


class Waiting(Sequence[RequestState]):
    """The queue: some requests at hand, then arrival numbers, whose requests are read when asked for."""

    def __init__(
        self,
        at_hand: list[RequestState],
        ranges: Sequence[Sequence[int]],
        read: Callable[[int], RequestState],
    ) -> None:
        self._at_hand = at_hand
        self._ranges = [tuple(r) for r in ranges]
        self._read = read
        self._length = len(at_hand) + sum(end - start for start, end in self._ranges)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> RequestState: ...
    @overload
    def __getitem__(self, index: slice) -> list[RequestState]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"index {index} of {self._length} waiting requests")
        if position < len(self._at_hand):
            return self._at_hand[position]
        position -= len(self._at_hand)
        for start, end in self._ranges:
            if position < end - start:
                return self._read(start + position)
            position -= end - start
        raise AssertionError("unreachable")
