"""Every packed row of up to three requests with one to three tokens each, beside tinycb's `causal_mask`."""

from __future__ import annotations

from itertools import accumulate, product
from types import ModuleType

import torch

from tinycb.learn import expect
from tinycb_kernels import causal_mask

HINTS = [
    "Begin with a list that says for each of the T tokens whose it is.",
    "Two conditions for an entry: the same owner, and j is not later than i.",
    "A list inside a list: for every i, a row of entries for every j.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `who_may_look` is right."""
    for count in (1, 2, 3):
        for lengths in product((1, 2, 3), repeat=count):
            _one_case(exercise, list(lengths))


def _one_case(exercise: ModuleType, lengths: list[int]) -> None:
    given, total = list(lengths), sum(lengths)
    got = exercise.who_may_look(lengths)
    case = {"lengths": given, "got": got}
    expect(given == lengths, "the list that was given was changed", **case)
    is_matrix = isinstance(got, list) and [len(row) for row in got] == [total] * total
    expect(is_matrix, "the answer is not T rows of T entries", **case)
    expect(all(type(e) is bool for row in got for e in row), "an entry is neither True nor False", **case)
    owner = [r for r, length in enumerate(given) for _ in range(length)]
    for i, j in product(range(total), repeat=2):
        fault = _fault(got[i][j], i, j, owner[i] == owner[j])
        expect(not fault, fault, **case, row=i, key=j)
    starts = torch.tensor([0, *accumulate(given)], dtype=torch.int32)
    expect(got == causal_mask(starts, starts).tolist(), "tinycb has another mask", lengths=given, got=got)


def _fault(may: bool, i: int, j: int, is_own: bool) -> str:
    """What is wrong with an entry; empty if nothing is."""
    if not may and i == j:
        return "a token does not see itself"
    if may and j > i:
        return "a token sees a later one"
    if may and not is_own:
        return "a token sees a stranger's"
    if not may and j < i and is_own:
        return "a token does not see an earlier one of its own request"
    return ""
