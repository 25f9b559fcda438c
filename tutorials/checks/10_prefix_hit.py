"""Every text of up to seven tokens against every set of remembered blocks, then beside tinycb's own pool."""

from __future__ import annotations

from itertools import chain, combinations
from types import ModuleType

from tinycb import Request
from tinycb.learn import expect
from tinycb.scheduling.block_pool import BlockPool

HINTS = [
    "The first block is there if `tuple(token_ids[:block_size])` is in `cached`; the second if the tuple of "
    "twice that length is.",
    "A `while` loop, one block a turn. It ends at the first block that is missing.",
    "With four tokens and blocks of four, the answer is zero: at least the last token must be computed.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `prefix_hit` is right."""
    text = [5, 6, 7, 5, 6, 7, 8]
    for size in (1, 2, 3, 4):
        for length in range(1, len(text) + 1):
            token_ids = text[:length]
            ends = range(size, len(text) + 1, size)
            for known in chain.from_iterable(combinations(ends, count) for count in range(len(ends) + 1)):
                cached = {tuple(text[:end]) for end in known}
                stranger = {(9, *text[1:end]) for end in ends}  # same tokens, but for the first one
                _one_case(exercise, token_ids, cached | stranger, size)
    _beside_tinycb(exercise)


def _one_case(exercise: ModuleType, token_ids: list[int], cached: set[tuple[int, ...]], size: int) -> None:
    given = (list(token_ids), set(cached))
    got = exercise.prefix_hit(token_ids, cached, size)
    case = {"token_ids": given[0], "cached": sorted(given[1]), "block_size": size, "got": got}
    expect((token_ids, cached) == given, "what was given was changed", **case)
    expect(type(got) is int and got >= 0, "the answer is not a number of tokens", **case)
    expect(got < len(token_ids), "nothing is left to compute, so there would be no logits", **case)
    expect(got % size == 0, "part of a block was taken", **case)
    parts = [tuple(token_ids[:end]) for end in range(size, got + 1, size)]
    expect(not parts or parts[-1] in cached, "a block was taken that nobody has computed", **case)
    expect(all(part in cached for part in parts), "a block was taken though one before it is missing", **case)
    end = got + size
    more = end < len(token_ids) and tuple(token_ids[:end]) in cached
    expect(not more, "one more block would have been there", **case)


def _beside_tinycb(exercise: ModuleType) -> None:
    """One request fills a pool's blocks; another, which parts from it somewhere, looks for its prefix."""
    first = list(range(20, 33))
    for size in (1, 2, 4):
        pool = BlockPool(16, size)
        owner = Request("A", first)
        owner.block_table = pool.allocate(-(-len(first) // size))
        pool.cache_full_blocks(owner, 0, len(first))
        cached = {tuple(first[:end]) for end in range(size, len(first) + 1, size)}
        for common in range(len(first) + 1):
            token_ids = [*first[:common], 99, 98]
            wanted = len(pool.find_prefix(Request("B", token_ids))) * size
            got = exercise.prefix_hit(list(token_ids), set(cached), size)
            case = {"token_ids": token_ids, "block_size": size, "got": got, "tinycb": wanted}
            expect(got == wanted, "tinycb's own pool finds something else", **case)
