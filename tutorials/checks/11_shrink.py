"""Every list of up to three lengths from 1 to 4, and a few longer ones, under ten kinds of failure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from types import ModuleType

from tinycb.learn import expect

HINTS = [
    "Write down all examples that one change makes of yours. With n requests there are at most 2 n of them.",
    "Try them in turn. As soon as one still fails, it is your example, and there are other changes to try.",
    "You are done when you went through the whole list and none of it fails. One pass over the requests is "
    "too few: a length that became less may allow another request to go.",
]
MOST_CALLS = 2000
Failure = Callable[[list[int]], bool]
FAILURES: dict[str, Failure] = {
    "there are two requests or more": lambda lengths: len(lengths) >= 2,
    "some length is over 2": lambda lengths: any(length > 2 for length in lengths),
    "the lengths add up to 5 or more": lambda lengths: sum(lengths) >= 5,
    "two neighbours are not equal": lambda lengths: any(a != b for a, b in pairwise(lengths)),
    "a long one comes before a short one": lambda lengths: any(
        a > b for i, a in enumerate(lengths) for b in lengths[i:]
    ),
    "the first is the longest, and not alone": lambda lengths: (
        len(lengths) > 1 and lengths[0] == max(lengths)
    ),
    "some length is 3": lambda lengths: 3 in lengths,
    "there are more requests than any of them has tokens": lambda lengths: (
        len(lengths) > max(lengths, default=9)
    ),
    "the lengths add up to an even number": lambda lengths: bool(lengths) and sum(lengths) % 2 == 0,
    "it always fails": lambda lengths: bool(lengths),
}
LONGER = [[5, 1, 9], [4, 4, 4, 4], [1, 2, 3, 4, 5], [6, 1, 1, 6], [2, 8, 2, 8, 2]]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `shrink` is right."""
    short = [list(lengths) for count in (1, 2, 3) for lengths in product((1, 2, 3, 4), repeat=count)]
    for name, failure in FAILURES.items():
        for example in [*short, *LONGER]:
            if failure(example):
                _one_case(exercise, example, name, failure)


def _one_case(exercise: ModuleType, example: list[int], name: str, failure: Failure) -> None:
    calls = 0

    def fails(lengths: list[int]) -> bool:
        nonlocal calls
        calls += 1
        expect(
            calls <= MOST_CALLS, "it does not come to an end", example=example, fails=name, calls=calls - 1
        )
        return failure(list(lengths))

    given = list(example)
    got = exercise.shrink(given, fails)
    case = {"example": example, "fails if": name, "got": got}
    expect(given == example, "the list that was given was changed", **case)
    is_list = isinstance(got, list) and all(isinstance(length, int) for length in got)
    expect(is_list, "the answer is not a list of lengths", **case)
    expect(all(length >= 1 for length in got), "a length is below one", **case)
    expect(failure(got), "what is left does not fail any more", **case)
    expect(_is_smaller(got, example), "what is left is not made by taking out and making less", **case)
    for i in range(len(got)):
        without = got[:i] + got[i + 1 :]
        expect(not failure(without), "a request can still be taken out", **case, smaller=without)
    for i, length in enumerate(got):
        lesser = [*got[:i], length - 1, *got[i + 1 :]]
        expect(length == 1 or not failure(lesser), "a length can still be made less", **case, smaller=lesser)


def _is_smaller(got: list[int], example: list[int]) -> bool:
    """Whether `got` fits into the example in order, each length under one that is at least as long."""
    rest = iter(example)
    return all(any(length <= longer for longer in rest) for length in got)
