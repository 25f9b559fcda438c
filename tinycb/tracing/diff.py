"""Two traces, step by step: where they are equal, and what each decided where they part.

Made for our run beside vLLM's, and good for any two. Requests are matched by id, or, where an engine names
them itself, by the order in which the same prompts arrived. Blocks are compared up to renaming (which
allocation a block came from, not its number), exactly, or not at all. Tokens are compared beside the
decisions, not among them: two engines may sample differently and schedule alike.

Reads records and nothing else. Next: `commands/diff.py`, which prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from tinycb.scheduling.decisions import Reason
from tinycb.tracing.records import StepRecord

__all__ = ["BLOCKS", "Comparison", "Parting", "TokenDifference", "compare", "config_differences"]

BLOCKS = ("renamed", "exact", "ignore")

# In this order, so that the first difference is the one nearest to its cause.
_FIELDS = (
    *("arrived", "refused", "aborted", "preempted", "admitted", "scheduled", "num_computed", "prefix_hits"),
    *("running", "num_waiting", "num_free_blocks", "block_tables", "error", "finished", "returned"),
)
_ABOUT_BLOCKS = ("num_free_blocks", "block_tables")


@dataclass(frozen=True, slots=True)
class Parting:
    """The first step that went another way: the field that tells, its two values, the two steps' decisions.

    A side that was over has None. index: from the first step of each trace; steps: their own numbers.
    """

    index: int
    field: str
    values: tuple[Any, Any]
    records: tuple[StepRecord | None, StepRecord | None]

    def decisions(self, side: int) -> list[str]:
        """What a side decided in that step, in sentences."""
        record = self.records[side]
        return [decision.sentence for decision in record.decisions] if record is not None else []


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The first token that two runs sampled differently for a request: its place in the output, from 0."""

    request_id: str
    place: int
    tokens: tuple[int, int]
    index: int


@dataclass(slots=True)
class Comparison:
    """parting: None if every step is the same. steps: how many are, from the first. matched: requests."""

    steps: int = 0
    parting: Parting | None = None
    token_difference: TokenDifference | None = None
    num_tokens: int = 0
    renamed_requests: bool = False
    requests: set[str] = field(default_factory=set)

    @property
    def is_equal(self) -> bool:
        return self.parting is None and self.token_difference is None


def compare(
    left: Iterable[StepRecord],
    right: Iterable[StepRecord],
    *,
    blocks: str = "renamed",
    reasons: bool = False,
    more_blocks: int = 0,
) -> Comparison:
    """Go through both until they part. reasons: their decisions must be the same too.

    more_blocks: how many the right-hand pool has more; that many more are free there, which is no difference.

    blocks: one of `BLOCKS`. A reason that is `not_stated` agrees with any. Once the decisions have parted,
    later steps are not comparable; tokens are compared up to there.
    """
    if blocks not in BLOCKS:
        raise ValueError(f"blocks must be one of {', '.join(BLOCKS)}, not {blocks!r}")
    result, names = Comparison(), _Names()
    sides = (_Side(blocks, {}, 0), _Side(blocks, names.other, more_blocks))
    counts: dict[str, int] = {}
    for index, pair in enumerate(zip_longest(left, right)):
        one, other = pair
        if one is None or other is None:
            values = tuple("over" if record is None else "goes on" for record in pair)
            result.parting = Parting(index, "length", (values[0], values[1]), (one, other))
            break
        names.match(one, other)
        views = sides[0].view(one), sides[1].view(other)
        if reasons:
            views[0]["decisions"], views[1]["decisions"] = _decisions(one, other, names.other)
        differing = next((name for name in views[0] if views[0][name] != views[1][name]), None)
        if differing is not None:
            shown = views[0][differing], views[1][differing]
            result.parting = Parting(index, differing, shown, (one, other))
            break
        _compare_tokens(result, counts, one.sampled, names.rename(other.sampled), index)
        result.steps += 1
        result.requests.update(one.arrived)
    result.renamed_requests = bool(names.other)
    return result


def config_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings, of two headers, that decide who runs and are not the same."""
    names = (
        *("batching", "block_size", "num_blocks", "max_num_batched_tokens", "max_num_seqs", "max_model_len"),
        *("prefix_caching", "reserve_full_prompt", "dtype"),
    )
    configs = left.get("config", {}), right.get("config", {})
    values = {name: (configs[0].get(name), configs[1].get(name)) for name in names}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


class _Names:
    """other: id of the right-hand run → id of the left-hand one, where they are not the same."""

    def __init__(self) -> None:
        self.other: dict[str, str] = {}

    def match(self, left: StepRecord, right: StepRecord) -> None:
        for one, other in zip(left.new_requests, right.new_requests, strict=False):
            if one.request_id != other.request_id and list(one.prompt_token_ids) == list(
                other.prompt_token_ids
            ):
                self.other[other.request_id] = one.request_id

    def rename(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self.other.get(name, name): value for name, value in values.items()}


class _Side:
    """One run's steps, in words that both runs share."""

    def __init__(self, blocks: str, names: Mapping[str, str], more_blocks: int) -> None:
        self.blocks = blocks
        self.names = names
        self.more_blocks = more_blocks
        self._labels: dict[int, tuple[int, str, int]] = {}  # block → the step and request that took it
        self._index = -1

    def view(self, record: StepRecord) -> dict[str, Any]:
        """Field → value, in `_FIELDS`' order."""
        self._index += 1
        result: dict[str, Any] = {}
        for name in _FIELDS:
            if name in _ABOUT_BLOCKS and self.blocks == "ignore":
                continue
            value = self._tables(record) if name == "block_tables" else getattr(record, name)
            if name == "num_free_blocks":
                value = record.num_free_blocks - self.more_blocks
            if isinstance(value, Mapping):
                value = {self.names.get(key, key): item for key, item in value.items()}
            elif isinstance(value, list):
                value = [self.names.get(item, item) for item in value]
            # who runs, in which order: a dict alone would not tell
            result[name] = list(value.items()) if name == "scheduled" and isinstance(value, dict) else value
        return result

    def _tables(self, record: StepRecord) -> dict[str, Any]:
        tables = {name: list(table) for name, table in record.block_tables.items()}
        if self.blocks == "exact":
            return tables
        for name, taken in record.blocks_allocated.items():
            for place, block_id in enumerate(taken):
                self._labels[block_id] = self._index, self.names.get(name, name), place
        labels = self._labels
        return {name: [labels.get(n, (-1, "", n)) for n in table] for name, table in tables.items()}


def _decisions(left: StepRecord, right: StepRecord, names: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    """Both lists, the one side's `not_stated` filled in from the other where everything else agrees."""
    mine = [(d.request_id, d.action, str(d.reason), dict(d.numbers)) for d in left.decisions]
    theirs = [
        (names.get(d.request_id, d.request_id), d.action, str(d.reason), _renamed(d.numbers, names))
        for d in right.decisions
    ]
    for place, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if one[:2] == other[:2] and str(Reason.NOT_STATED) in (one[2], other[2]):
            mine[place] = theirs[place] = one
    return mine, theirs


def _renamed(numbers: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {
        key: names.get(value, value) if isinstance(value, str) else value for key, value in numbers.items()
    }


def _compare_tokens(
    result: Comparison, counts: dict[str, int], left: Mapping[str, int], right: Mapping[str, int], index: int
) -> None:
    for name, token in left.items():
        place = counts.get(name, 0)
        counts[name] = place + 1
        result.num_tokens += 1
        other = right.get(name)
        if other is not None and other != token and result.token_difference is None:
            result.token_difference = TokenDifference(name, place, (token, other), index)
