"""Theorems that compare two calls: what may change around a request without changing its result.

Some ask every kernel for equal bits: what a neighbour holds, and what lies in nobody's memory, is not part of
the sum at all. Others change the order in which a kernel may well add: there equal bits are asked with
`exact`, which tinycb's Numba loops satisfy in float32, and rounding is allowed without. Every statement says
which.

Next: `cache_write.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from tinycb.proofs.draw import Contents, Drawn, arguments, draw, place
from tinycb.proofs.launch import Subject, attend, row_name, split, unequal
from tinycb.proofs.memory import STRIDES, restride
from tinycb.proofs.picture import describe_batch
from tinycb.proofs.strategies import RaggedBatch, Varied, ragged_batches, varied, with_layout
from tinycb.proofs.theorem import Counterexample, Theorem
from tinycb.view.signs import letter

__all__ = ["invariance_theorems"]

POISON = (math.nan, math.inf, -math.inf, 3e4)


def invariance_theorems(kind: str, exact: bool) -> tuple[Theorem, ...]:
    """kind: "mask", "varlen" or "paged". exact: see the module."""
    paged = kind == "paged"
    how = "bit for bit" if exact else "to rounding"

    def theorem(
        name: str, statement: str, check: Callable[..., None], change: Any, count: int, requests: int = 1
    ) -> Theorem:
        def examples(scope: Any) -> Any:
            return varied(ragged_batches(scope, paged=paged, min_requests=requests), change)

        return Theorem(name, kind, statement, examples, partial(check, kind, exact), count)

    one_request = _numbers(lambda batch: len(batch.rows) - 1)
    only_paged = (
        theorem(
            "placement_of_blocks_is_free",
            f"Which physical blocks hold a request, and whether it shares them, changes nothing, {how}.",
            other_places, _numbers(lambda batch: 999), 30,
        ),
        theorem(
            "the_block_size_changes_nothing",
            f"Another block size changes nothing, {how}.",
            other_block_size, lambda batch: st.tuples(st.sampled_from((1, 2, 3, 4, 5, 8, 16, 32, 64))), 30,
        ),
    ) if paged else ()  # fmt: skip
    held = "any finite number" if kind == "mask" else "any number, NaN and infinity too"
    return (
        theorem(
            "neighbours_change_no_bit",
            f"Whatever other requests hold, {held}, a request's result keeps every bit.",
            other_neighbours, one_request, 40, 2,
        ),
        theorem(
            "memory_of_nobody_is_never_read",
            "NaN or infinity in memory that belongs to no request changes no bit of any result.",
            other_memory, _numbers(lambda batch: len(POISON) - 1), 40,
        ),
        theorem(
            "a_query_is_blind_to_its_future",
            f"Other finite keys and values at a request's last position change only its last query, {how}.",
            other_future, one_request, 30,
        ),
        theorem(
            "the_company_is_free",
            f"A request has the same result alone as in the batch, {how}.",
            without_company, one_request, 30, 2,
        ),
        theorem(
            "order_of_requests_is_free",
            f"Requests in another order have their results in that order, {how}.",
            other_order, lambda batch: st.permutations(range(len(batch.rows))), 30, 2,
        ),
        theorem(
            "any_chunking_gives_the_same",
            f"Queries that come in chunks over several calls have the results of one call, {how}.",
            in_chunks, lambda batch: st.lists(st.integers(1, 70), min_size=1, max_size=4), 30,
        ),
        *only_paged,
        theorem(
            "any_strides_give_the_same",
            f"Tensors laid out in memory in another way, with other strides, change nothing, {how}.",
            other_strides, _numbers(lambda batch: len(STRIDES) - 1), 30,
        ),
    )  # fmt: skip


def _numbers(highest: Callable[[RaggedBatch], int]) -> Callable[[RaggedBatch], Any]:
    return lambda batch: st.tuples(st.integers(0, highest(batch)))


def _run(kind: str, subject: Subject, drawn: Drawn, **how: Any) -> list[torch.Tensor]:
    return split(drawn, attend(subject, drawn, arguments(kind, drawn, **how)))


def _expect(
    drawn: Drawn,
    r: int,
    before: torch.Tensor,
    after: torch.Tensor,
    exact: bool,
    what: str,
    first_query: int = 0,
) -> None:
    """Raise Counterexample if two results of request r differ. what: what changed in between, in words."""
    found = unequal(r, before, after, exact)
    if found is not None:
        found = replace(found, query=found.query + first_query)
        raise Counterexample(f"{what}: {found.words(drawn, 'before', 'after')}", describe_batch(drawn))


def other_neighbours(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn, me = draw(example.batch), example.change[0]
    random = np.random.default_rng(example.batch.seed + 1)
    value = POISON[example.batch.seed % len(POISON)] if kind != "mask" else None

    def another(tensor: torch.Tensor) -> torch.Tensor:
        if value is not None:
            return torch.full_like(tensor, value)
        return torch.from_numpy(100 * random.standard_normal(tensor.shape, np.float32)).to(tensor.dtype)

    others = [
        one if r == me else Contents(another(one.q), another(one.k), another(one.v))
        for r, one in enumerate(drawn.requests)
    ]
    before = _run(kind, subject, drawn, winner=me)[me]
    after = _run(kind, subject, drawn.holding(others), winner=me)[me]
    held = "other numbers" if value is None else str(value)
    _expect(drawn, me, before, after, True, f"all requests but {letter(me)} got {held} for q, k and v")


def other_memory(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn, value = draw(example.batch), POISON[example.change[0]]
    before = _run(kind, subject, drawn, nobody=0.0, unused=0)
    after = _run(kind, subject, drawn, nobody=value)
    for r in range(len(before)):
        _expect(drawn, r, before[r], after[r], True, f"memory of nobody went from 0 to {value}")


def other_future(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn, me = draw(example.batch), example.change[0]
    one = drawn.requests[me]
    earlier = len(one.q) - 1
    if earlier < 1 or not len(one.k):
        return
    k, v = one.k.clone(), one.v.clone()
    k[-1], v[-1] = -2 * k[-1], 9 * v[-1] + 1
    others = [Contents(one.q, k, v) if r == me else other for r, other in enumerate(drawn.requests)]
    before = _run(kind, subject, drawn, winner=me)[me][:earlier]
    after = _run(kind, subject, drawn.holding(others), winner=me)[me][:earlier]
    _expect(drawn, me, before, after, exact, f"request {letter(me)} got another last key and value")


def without_company(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn, me = draw(example.batch), example.change[0]
    alone = drawn.pick([me])
    if not alone.batch.num_queries:
        return
    before = _run(kind, subject, alone)[0]
    _expect(drawn, me, before, _run(kind, subject, drawn)[me], exact, f"request {letter(me)} got company")


def other_order(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn, order = draw(example.batch), example.change
    before, after = _run(kind, subject, drawn), _run(kind, subject, drawn.pick(order))
    names = " ".join(letter(r) for r in order)
    for place_in_batch, r in enumerate(order):
        _expect(drawn, r, before[r], after[place_in_batch], exact, f"the requests came in the order {names}")


def in_chunks(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn = draw(example.batch)
    whole = _run(kind, subject, drawn)
    done = [0] * len(drawn.requests)
    for turn in range(max(len(one.q) for one in drawn.requests)):
        length = example.change[turn % len(example.change)]
        ends = [min(len(one.q), start + length) for one, start in zip(drawn.requests, done, strict=True)]
        if ends == done:
            return
        step = drawn.holding([
            Contents(one.q[start:end], *(x[: max(0, len(one.k) - len(one.q) + end)] for x in (one.k, one.v)))
            for one, start, end in zip(drawn.requests, done, ends, strict=True)
        ])  # fmt: skip
        for r, part in enumerate(_run(kind, subject, step)):
            what = f"request {letter(r)} ran in chunks, this one from query {done[r]} to {ends[r] - 1}"
            _expect(drawn, r, whole[r][done[r] : ends[r]], part, exact, what, done[r])
        done = ends


def other_places(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn = draw(example.batch)
    tables, num_blocks = place(with_layout(example.batch, shuffle=example.change[0], shared_blocks=0))
    moved = replace(drawn, tables=tables, num_blocks=num_blocks)
    before, after = _run(kind, subject, drawn), _run(kind, subject, moved)
    for r in range(len(before)):
        what = f"request {letter(r)} moved from blocks {list(drawn.tables[r])} to {list(tables[r])}"
        _expect(drawn, r, before[r], after[r], exact, what)


def other_block_size(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    batch = with_layout(example.batch, shared_blocks=0)
    drawn, other = draw(batch), draw(with_layout(batch, block_size=example.change[0]))
    before, after = _run(kind, subject, drawn), _run(kind, subject, other)
    sizes = (
        f"the block size went from {batch.layout.block_size if batch.layout else 0} to {example.change[0]}"
    )
    for r in range(len(before)):
        _expect(drawn, r, before[r], after[r], exact, sizes)


def other_strides(kind: str, exact: bool, subject: Subject, example: Varied) -> None:
    drawn, name = draw(example.batch), list(STRIDES)[example.change[0]]
    tensors = arguments(kind, drawn)
    before = split(drawn, attend(subject, drawn, tensors))
    after = split(drawn, attend(subject, drawn, restride(name, tensors)))
    for r in range(len(before)):
        if before[r].isnan().any():
            raise Counterexample(
                f"contiguous tensors gave NaN: {row_name(drawn, r, 0)}", describe_batch(drawn)
            )
        _expect(drawn, r, before[r], after[r], exact, f"the tensors were laid out {STRIDES[name]}")
