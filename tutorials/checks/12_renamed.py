"""Every pair of tables of two requests with up to two blocks each out of three, and a few more."""

from __future__ import annotations

from itertools import permutations, product
from types import ModuleType

from tinycb.learn import expect

HINTS = [
    "Go through both tables at once, and keep in a dict what each of our numbers became.",
    "A number that became something once must become the same again, in every table.",
    "Two of our numbers must not become one of theirs: look from their side too, with a second dict.",
]
BLOCKS = (0, 1, 2)
Tables = dict[str, list[int]]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `same_up_to_renaming` is right."""
    for lengths in product(range(3), repeat=2):
        tables = [_cut(blocks, lengths) for blocks in product(BLOCKS, repeat=sum(lengths))]
        for ours, theirs in product(tables, repeat=2):
            _one_case(exercise, ours, theirs)
    for ours, theirs in (
        ({"A": [1], "B": [2]}, {"A": [1]}),
        ({"A": [1]}, {"A": [1], "B": [2]}),
        ({"A": [1, 2]}, {"A": [1]}),
        ({"A": [1]}, {"A": [1, 2]}),
        ({"A": [1], "B": []}, {"A": [1], "C": []}),
        ({"A": [1], "B": [2]}, {"B": [1], "A": [2]}),
        ({"A": [1, 2], "B": [1]}, {"B": [7], "A": [7, 3]}),
        ({}, {}),
    ):
        _one_case(exercise, ours, theirs)


def _cut(blocks: tuple[int, ...], lengths: tuple[int, ...]) -> Tables:
    first = lengths[0]
    return {"A": list(blocks[:first]), "B": list(blocks[first:])}


def _one_case(exercise: ModuleType, ours: Tables, theirs: Tables) -> None:
    given = {name: list(table) for name, table in ours.items()}, {n: list(t) for n, t in theirs.items()}
    got = exercise.same_up_to_renaming(*given)
    case = {"ours": ours, "theirs": theirs}
    expect(given == (ours, theirs), "the tables that were given were changed", **case)
    expect(isinstance(got, bool), "the answer is neither True nor False", **case, got=got)
    lengths = {name: len(table) for name, table in ours.items()}
    if lengths != {name: len(table) for name, table in theirs.items()}:
        expect(not got, "other requests, or other numbers of blocks, pass for the same", **case)
        return
    here = [block for name in ours for block in ours[name]]
    there = [block for name in ours for block in theirs[name]]
    if _exists(here, there):
        expect(got, "tables that differ in the numbers only do not pass for the same", **case)
        return
    splits = any(a == b and x != y for (a, x), (b, y) in permutations(list(zip(here, there, strict=True)), 2))
    if splits:
        expect(not got, "one of our blocks became two of theirs", **case)
    expect(not got, "two of our blocks became one of theirs", **case)


def _exists(here: list[int], there: list[int]) -> bool:
    """Straight from the definition: places with equal numbers are the same places on both sides."""
    places = range(len(here))
    return all((here[i] == here[j]) == (there[i] == there[j]) for i in places for j in places)
