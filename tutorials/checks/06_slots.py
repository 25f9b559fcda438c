"""Every table of up to three of five blocks, every block size up to four, every piece of every length."""

from __future__ import annotations

from itertools import permutations
from types import ModuleType

import numpy as np

from tinycb.learn import expect
from tinycb.packing import Row, pack

HINTS = [
    "A position splits into two numbers: which of the request's blocks, and the place in that block. `//` "
    "gives one, `%` the other.",
    "`block_table` turns the first of them, the logical block, into a block of the cache.",
    "Positions count from the beginning of the request, not from the beginning of this step: the first new "
    "token has position `start`.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `slots` is right."""
    for block_size in (1, 2, 3, 4):
        for count in (1, 2, 3):
            for table in permutations(range(5), count):
                room = count * block_size
                for start in range(room):
                    for num_tokens in range(1, room - start + 1):
                        _one_case(exercise, list(table), block_size, start, num_tokens)
    _as_packed(exercise)


def _one_case(exercise: ModuleType, table: list[int], block_size: int, start: int, num_tokens: int) -> None:
    given = list(table)
    got = exercise.slots(given, block_size, start, num_tokens)
    case = {
        "block_table": table,
        "block_size": block_size,
        "start": start,
        "num_tokens": num_tokens,
        "got": got,
    }
    expect(given == table, "the block table that was given was changed", **case)
    expect(isinstance(got, list) and len(got) == num_tokens, "not every new token got one slot", **case)
    own = {block * block_size + offset for block in table for offset in range(block_size)}
    expect(set(got) <= own, "a token was put into a block that is not the request's", **case)
    expect(len(set(got)) == num_tokens, "two tokens were put into one slot", **case)
    right = [table[p // block_size] * block_size + p % block_size for p in range(start + num_tokens)]
    expect(not set(got) & set(right[:start]), "a token overwrote one that had been computed before", **case)
    blocks = [slot // block_size for slot in got]
    should = [slot // block_size for slot in right[start:]]
    expect(blocks == should, "a token was put into another block than its position's", **case)
    expect(got == right[start:], "tokens do not lie in their block in order", **case)


def _as_packed(exercise: ModuleType) -> None:
    """A step with three requests, as tinycb's own packing lays it out."""
    rows = [
        Row("A", range(100), 0, 37, [9, 2, 11]),
        Row("B", range(100), 50, 1, [4, 0, 7, 3]),
        Row("C", range(100), 12, 9, [1, 8]),
    ]
    packed = pack(rows, 16)
    got = [
        slot for row in rows for slot in exercise.slots(list(row.block_table), 16, row.start, row.num_tokens)
    ]
    same = np.array_equal(np.array(got), packed.slot_mapping)
    expect(same, "a step of three requests got another slot_mapping than tinycb's own", got=got)
