"""Every batch of up to three requests with up to three rows and up to four keys each, row by row."""

from __future__ import annotations

from itertools import accumulate, product
from types import ModuleType

from tinycb.learn import expect

HINTS = [
    "First find the request: the last one whose offset in `cu_seqlens_q` is not above the row. Two requests "
    "have the same offset when the first of them has no rows.",
    "`kv_begin` is that request's offset in `cu_seqlens_k`; nothing is added to it.",
    "Count `kv_end` from the right: the last row ends where the request's keys end. How many rows of the "
    "request come after this one?",
    "With more rows than keys, that falls below `kv_begin` for the first rows.",
]
LENGTHS = tuple(product(range(4), range(5)))  # (rows, keys) of one request


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `kv_range` is right."""
    for count in (1, 2, 3):
        for requests in product(LENGTHS, repeat=count):
            starts = [0, *accumulate(rows for rows, _ in requests)]
            key_starts = [0, *accumulate(keys for _, keys in requests)]
            for r, (rows, keys) in enumerate(requests):
                for i in range(rows):
                    seen = range(key_starts[r], key_starts[r] + max(0, keys - rows + i + 1))
                    own = range(key_starts[r], key_starts[r + 1])
                    _one_row(exercise, starts[r] + i, starts, key_starts, seen, own)


def _one_row(
    exercise: ModuleType, row: int, starts: list[int], key_starts: list[int], seen: range, own: range
) -> None:
    given = (list(starts), list(key_starts))
    got = exercise.kv_range(row, *given)
    case = {"row": row, "cu_seqlens_q": starts, "cu_seqlens_k": key_starts, "got": got}
    expect(given == (starts, key_starts), "the offsets that were given were changed", **case)
    is_pair = isinstance(got, tuple) and len(got) == 2 and all(isinstance(part, int) for part in got)
    expect(is_pair, "the answer is not two numbers, kv_begin and kv_end", **case)
    begin, end = got
    expect(begin <= end, "the keys end before they begin", **case)
    keys = range(begin, end)
    expect(set(keys) <= set(own), "a row sees the keys of another request", **case)
    expect(set(keys) <= set(seen), "a row sees a key that comes after it", **case)
    expect(set(seen) <= set(keys), "a row does not see all of its own past", **case)
