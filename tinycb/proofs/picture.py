"""A failure as a picture: the keys a query should have seen, the ones it did, and through which block.

    query 1 of 2 of request B (sees keys 0–4), row 7 of q, head 0
      position  0 1 2 3 | 4
      should    # # # # | #
      did       # # # # | .
      missed    key 4 = block_table[1, 1] → block 7, offset 0 (slot 28)
      seen too  slot 12 (block 3, offset 0): key 0 of request A

What it did is read out of the kernel again, on the failing example, with one-hot values (`selection.py`).
Plain text of at most 80 columns, without colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tinycb.proofs.draw import Drawn, draw, owners, slots_of
from tinycb.proofs.launch import Difference, Subject, row_name
from tinycb.proofs.oracle import Array, visible_keys
from tinycb.proofs.selection import expected_weights, read_weights
from tinycb.proofs.strategies import RaggedBatch, Varied
from tinycb.view.signs import letter

__all__ = [
    "describe",
    "describe_batch",
    "picture_of",
    "picture_of_weights",
    "words_for_weights",
    "wrong_rows",
]

COLUMNS = 62  # for the keys; a longer row is cut to the part where it goes wrong
LISTED = 4
WEIGHS = 1e-6  # a key that got more than this was looked at


def picture_of(kind: str, subject: Subject, drawn: Drawn, found: Difference) -> str:
    """Which keys the query of a difference saw, and the numbers; empty where the kernel cannot be read."""
    weights = read_weights(kind, subject, drawn)
    row = sum(q_len for q_len, _ in drawn.batch.rows[: found.r]) + found.query
    numbers = "\n".join(_numbers(found))
    wrong = wrong_rows(drawn, weights)
    here = [place for place in wrong if place[0] == row]
    if here or not wrong:
        row, head = here[0] if here else (row, found.head)
        lines = picture_of_weights(kind, drawn, weights, row, head)
        note = (
            []
            if here
            else ["  It looks at the right keys, so it is the arithmetic, or which number it loads."]
        )
        return "\n".join([lines, *note, numbers])
    return "\n".join(
        [
            numbers,
            "Another query looks at the wrong keys:",
            picture_of_weights(kind, drawn, weights, *wrong[0]),
        ]
    )


def wrong_rows(drawn: Drawn, weights: Array) -> list[tuple[int, int]]:
    """(row of q, head) of every query whose weights (T, H, slots) are not what they should be."""
    expected = expected_weights(drawn)[:, None]  # (T, 1, slots)
    allowed = expected * (1e-5 if drawn.batch.dtype == "float32" else 0.02) + 1e-6
    off = ~(np.abs(weights - expected) <= allowed)
    return [(int(row), int(head)) for row, head in np.argwhere(off.any(axis=-1))]


def picture_of_weights(kind: str, drawn: Drawn, weights: Array, row: int, head: int) -> str:
    """The picture of one query, from weights (T, H, slots) that were read out of a kernel."""
    r, query = _request_of(drawn, row)
    q_len, seq_len = drawn.batch.rows[r]
    title = f"{row_name(drawn, r, query)}, row {row} of q, head {head}"
    got = weights[row, head]
    if not np.isfinite(got).all():
        return f"{title}\n  With finite values everywhere and a query of zeros, it gave {_some(got)}."
    slots = slots_of(drawn, r)
    should = set(visible_keys(q_len, seq_len, query))
    did = {position for position in range(seq_len) if got[slots[position]] > WEIGHS}
    strays = [int(slot) for slot in np.flatnonzero(got > WEIGHS) if slot not in set(slots)]
    missed, extra = sorted(should - did), sorted(did - should)
    lines = [title, *_strip(drawn, seq_len, should, did, [*missed, *extra])]
    lines += _listed("missed", (_through(kind, drawn, r, position) for position in missed))
    lines += _listed("seen too", (_through(kind, drawn, r, position) for position in extra))
    lines += _listed("seen too", (_whose(drawn, slot) for slot in strays))
    if not missed and not extra and not strays and not _even(got[[slots[p] for p in sorted(should)]]):
        lines.append(
            f"  the weights should be {1 / max(1, len(should)):.4g} each, and are {_some(got[got > 0])}"
        )
    return "\n".join(lines)


def words_for_weights(drawn: Drawn, weights: Array, row: int, head: int) -> str:
    """The same in one sentence: how many keys a query missed, and how many it saw that it should not have."""
    r, query = _request_of(drawn, row)
    got, expected = weights[row, head], expected_weights(drawn)[row]
    missed = int(((expected > 0) & ~(got > WEIGHS)).sum())
    extra = int(((expected == 0) & (got > WEIGHS)).sum())
    did = [f"missed {_count(missed, 'key', 'keys')}"] * bool(missed)
    did += [f"saw {_count(extra, 'key', 'keys')} that it should not see"] * bool(extra)
    return f"{row_name(drawn, r, query)}, head {head}, {' and '.join(did) or 'weighs its keys unevenly'}"


def describe_batch(drawn: Drawn) -> str:
    """The batch in a few lines: lengths, heads, and where each request's blocks are."""
    batch = drawn.batch
    lines = [
        f"{_count(len(batch.rows), 'request', 'requests')}, {_count(batch.heads, 'head', 'heads')} on "
        f"{_count(batch.kv_heads, 'KV head', 'KV heads')}, head dim {batch.head_dim}, {batch.dtype}"
    ]
    if batch.layout is not None:
        lines[0] += f", block size {batch.layout.block_size}, {_count(drawn.num_blocks, 'block', 'blocks')}"
    for r, (q_len, seq_len) in enumerate(batch.rows):
        table = drawn.tables[r] if drawn.tables else ()
        blocks = f", in block{'s' if len(table) > 1 else ''} {_run(table)}" if table else ""
        lines.append(
            f"  {letter(r)}  {_count(q_len, 'query', 'queries')}, {_count(seq_len, 'key', 'keys')}{blocks}"
        )
    return "\n".join(lines)


def describe(example: Any) -> str:
    """Any example in a few lines, for when there is nothing else to show."""
    batch = example.batch if isinstance(example, Varied) else example
    if not isinstance(batch, RaggedBatch):
        return str(example)
    change = f"\nchange: {' '.join(map(str, example.change))}" if isinstance(example, Varied) else ""
    return describe_batch(draw(batch)) + change


def _request_of(drawn: Drawn, row: int) -> tuple[int, int]:
    for r, (q_len, _) in enumerate(drawn.batch.rows):
        if row < q_len:
            return r, row
        row -= q_len
    raise IndexError(row)


def _strip(drawn: Drawn, seq_len: int, should: set[int], did: set[int], wrong: list[int]) -> list[str]:
    """The three lines of keys, around the first wrong one if there are too many."""
    if not seq_len:
        return ["  it has no keys"]
    size = drawn.batch.layout.block_size if drawn.batch.layout else seq_len
    width = len(str(seq_len - 1))
    cells = int(COLUMNS / (width + 1 + 2 / size))
    focus = min(wrong) if wrong else len(should) - 1
    first = max(0, min(focus - cells // 2, seq_len - cells))
    shown = range(first, min(seq_len, first + cells))

    def line(label: str, sign: dict[int, str]) -> str:
        text = "… " if first else ""
        for position in shown:
            border = "| " if position % size == 0 and position > first else ""
            text += border + sign[position].rjust(width) + " "
        return f"  {label:<9} {text}{'…' if shown[-1] < seq_len - 1 else ''}".rstrip()

    return [
        line("position", {position: str(position) for position in shown}),
        line("should", {position: "#" if position in should else "." for position in shown}),
        line("did", {position: "#" if position in did else "." for position in shown}),
    ]


def _through(kind: str, drawn: Drawn, r: int, position: int) -> str:
    """How a key is found: through the block table, or as a row of k."""
    slot = slots_of(drawn, r)[position]
    if kind != "paged" or drawn.batch.layout is None:
        return f"key {position} of request {letter(r)}, row {slot} of k"
    size = drawn.batch.layout.block_size
    return (
        f"key {position} = block_table[{r}, {position // size}] → block {slot // size}, "
        f"offset {slot % size} (slot {slot})"
    )


def _whose(drawn: Drawn, slot: int) -> str:
    layout = drawn.batch.layout
    place = f"row {slot} of k" if layout is None else (
        f"slot {slot} (block {slot // layout.block_size}, offset {slot % layout.block_size})"
    )  # fmt: skip
    holders = [f"key {position} of request {letter(r)}" for r, position in owners(drawn).get(slot, [])]
    return f"{place}: {' and '.join(holders) or 'nobody’s'}"


def _listed(label: str, items: Iterable[str]) -> list[str]:
    items = list(items)
    lines = [f"  {label if not i else '':<9} {item}" for i, item in enumerate(items[:LISTED])]
    return lines + ([f"  {'':<9} and {len(items) - LISTED} more"] if len(items) > LISTED else [])


def _numbers(found: Difference) -> list[str]:
    far = np.nan_to_num(np.abs(found.got - found.expected), nan=math.inf) > found.allowed
    first = max(0, min(int(np.argmax(far)) - 1, len(far) - 4))
    shown = slice(first, first + 4)
    return [
        f"  head {found.head}, dims {first}–{first + len(found.got[shown]) - 1}",
        f"    expected {_some(found.expected[shown])}",
        f"    got      {_some(found.got[shown])}",
    ]


def _even(weights: Array) -> bool:
    return weights.size == 0 or bool(np.allclose(weights, 1 / weights.size, rtol=0.02))


def _some(numbers: Array) -> str:
    return " ".join(f"{number:.5g}" for number in numbers.ravel()[:4]) + (" …" if numbers.size > 4 else "")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _run(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "")
