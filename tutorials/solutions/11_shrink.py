"""Make a failing example smaller: a solution."""

from collections.abc import Callable


def shrink(example: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    """A smaller example on which it still fails; no single change makes it smaller yet."""
    found = True
    while found:
        found = False
        for smaller in changes(example):
            if fails(smaller):
                example, found = smaller, True
                break
    return example


def changes(example: list[int]) -> list[list[int]]:
    """Everything that one change makes of an example: first with a request less, then with a token less."""
    shorter = [example[:i] + example[i + 1 :] for i in range(len(example))]
    lesser = [[*example[:i], length - 1, *example[i + 1 :]] for i, length in enumerate(example) if length > 1]
    return shorter + lesser
