"""Theorems about attention of a ragged batch, each about one call: which keys it sees, and what comes out.

They are the same on all three paths; `kind` says how a subject is called:

    mask     (q, k, v, mask, scale)                                              as `mask_attention`
    varlen   (q, k, v, cu_seqlens_q, cu_seqlens_k, scale)                        as `varlen_attention`
    paged    (q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale)   as `paged_attention`

scale is a float. Theorems that compare two calls, such as that neighbours change no bit, are in
`invariance.py`, which is next.
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
from hypothesis.strategies import SearchStrategy

from tinycb.proofs.draw import Contents, Drawn, arguments, draw, torch_dtype
from tinycb.proofs.far import examples_far_away, keys_far_away
from tinycb.proofs.invariance import invariance_theorems
from tinycb.proofs.launch import (
    Subject,
    attend,
    difference,
    row_name,
    same_bits,
    split,
    tolerance,
    truth,
)
from tinycb.proofs.picture import (
    describe_batch,
    picture_of,
    picture_of_weights,
    words_for_weights,
    wrong_rows,
)
from tinycb.proofs.selection import read_weights
from tinycb.proofs.strategies import RaggedBatch, Varied, ragged_batches, varied
from tinycb.proofs.theorem import Counterexample, Scope, Theorem
from tinycb.view.signs import letter

__all__ = ["attention_theorems"]

LEVELS = (-61_440, 61_440, -61_440, -200)  # what all scores are near to, in `huge_scores_are_right`


def attention_theorems(kind: str, exact: bool = False) -> tuple[Theorem, ...]:
    """All theorems about attention of one kind: "mask", "varlen" or "paged".

    exact: ask for equal bits where a kernel may well differ by rounding: in another order, another place,
    other chunks or other blocks. tinycb's own CPU loops give them in float32.
    """
    paged = kind == "paged"

    def theorem(
        name: str, statement: str, check: Callable[..., None], examples: Any = None, count: int = 50
    ) -> Theorem:
        examples = examples or (lambda scope: ragged_batches(scope, paged=paged))
        return Theorem(name, kind, statement, examples, partial(check, kind), count)

    far = () if kind == "mask" else (
        theorem(
            "offsets_are_64_bit",
            "Keys over 2^31 numbers into a tensor are found: offsets are widened, then multiplied.",
            keys_far_away, partial(examples_far_away, paged), 2,
        ),
    )  # fmt: skip
    return (
        theorem(
            "a_query_sees_exactly_its_own_past",
            "Query i of q_len sees positions 0 … seq_len - q_len + i of its own request, and nothing else.",
            sees_its_past, lambda scope: ragged_batches(
                scope, paged=paged, max_keys=(60, 160, 400)[scope.cost - 1], head_dims=(64,)
            ), 40,
        ),
        theorem(
            "agrees_with_one_request_alone",
            "Each request's result is that of the float64 oracle, which knows no batch, to rounding.",
            agrees, None, 80,
        ),
        theorem(
            "rows_that_see_nothing_are_zero",
            "A query that may attend to nothing returns 0: with no keys, or with more queries than keys.",
            blind_rows_are_zero, partial(_blind, paged), 30,
        ),
        theorem(
            "gqa_heads_map_to_their_group",
            "Query head h reads keys and values of KV head h // (H // KH).",
            heads_map, partial(_grouped, paged), 30,
        ),
        theorem(
            "huge_scores_are_right",
            "The softmax is right where all scores are near -61440, 61440 or -200: -inf has no stand-in.",
            huge_scores, partial(_levels, paged), 30,
        ),
        theorem(
            "inputs_are_left_alone",
            "No argument is written to, nor the memory just before and behind it.",
            inputs_untouched, None, 20,
        ),
        *invariance_theorems(kind, exact),
        *far,
    )  # fmt: skip


# ---- where to look -----------------------------------------------------------------------------------------


def _blind(paged: bool, scope: Scope) -> SearchStrategy[RaggedBatch]:
    def with_blind_row(batch: RaggedBatch, seq_len: int, more: int) -> RaggedBatch:
        return replace(batch, rows=(*batch.rows[:2], (seq_len + more, seq_len), *batch.rows[2:]))

    return st.builds(with_blind_row, ragged_batches(scope, paged=paged), st.integers(0, 9), st.integers(1, 5))


def _grouped(paged: bool, scope: Scope) -> SearchStrategy[RaggedBatch]:
    def long_enough(batch: RaggedBatch) -> RaggedBatch:
        rows = tuple((q_len, max(seq_len, batch.kv_heads + q_len)) for q_len, seq_len in batch.rows)
        return replace(batch, rows=rows, scale=1.0)

    return ragged_batches(scope, paged=paged).map(long_enough)


def _levels(paged: bool, scope: Scope) -> SearchStrategy[Varied]:
    def with_hidden_keys(batch: RaggedBatch) -> RaggedBatch:
        hides = any(q_len > 1 and seq_len > 1 for q_len, seq_len in batch.rows)
        return replace(batch, scale=1.0, rows=batch.rows if hides else ((2, 3), *batch.rows[1:]))

    batches = ragged_batches(scope, paged=paged).map(with_hidden_keys)
    return varied(batches, lambda batch: st.tuples(st.sampled_from(LEVELS)))


# ---- how to tell -------------------------------------------------------------------------------------------


def sees_its_past(kind: str, subject: Subject, batch: RaggedBatch) -> None:
    drawn = draw(batch)
    weights = read_weights(kind, subject, drawn)
    wrong = wrong_rows(drawn, weights)
    if wrong:
        row, head = wrong[0]
        picture = picture_of_weights(kind, drawn, weights, row, head)
        pairs = f"{len(wrong)} of {batch.num_queries * batch.heads} (query, head) pairs are wrong"
        words = words_for_weights(drawn, weights, row, head)
        raise Counterexample(f"{words}; {pairs}", describe_batch(drawn) + "\n" + picture)


def agrees(kind: str, subject: Subject, batch: RaggedBatch) -> None:
    _compare(kind, subject, draw(batch))


def _compare(kind: str, subject: Subject, drawn: Drawn, allowed: float | None = None) -> None:
    """Run a batch and hold it against the oracle. allowed: instead of the usual tolerance."""
    results = split(drawn, attend(subject, drawn, arguments(kind, drawn)))
    for r, result in enumerate(results):
        right = truth(drawn, r)
        limit = tolerance(drawn, r, right) if allowed is None else allowed
        found = difference(r, right, result.double().numpy(), limit)
        if found is not None:
            raise Counterexample(
                found.words(drawn),
                lambda found=found: describe_batch(drawn) + "\n" + picture_of(kind, subject, drawn, found),  # type: ignore[misc]
            )


def blind_rows_are_zero(kind: str, subject: Subject, batch: RaggedBatch) -> None:
    drawn = draw(batch)
    results = split(drawn, attend(subject, drawn, arguments(kind, drawn)))
    for r, (q_len, seq_len) in enumerate(batch.rows):
        for query in range(max(0, q_len - seq_len)):
            wrong = (results[r][query] != 0).nonzero()
            if len(wrong):
                head, dim = wrong[0].tolist()
                raise Counterexample(
                    f"{row_name(drawn, r, query)}, head {head}, dim {dim}: expected 0, got "
                    f"{float(results[r][query, head, dim]):.6g}",
                    describe_batch(drawn),
                )


def heads_map(kind: str, subject: Subject, batch: RaggedBatch) -> None:
    """Key n of KV head n is the only one with a high score, and values say whose they are and where."""
    drawn = draw(batch)
    read = []
    for one in drawn.requests:
        q, k, v = torch.zeros_like(one.q), torch.zeros_like(one.k), torch.zeros_like(one.v)
        q[:, :, 0] = 8
        head = torch.arange(batch.kv_heads)
        k[head, head, 0] = 8
        v[:, :, 0] = head.to(v.dtype)
        v[:, :, 1] = torch.arange(len(v)).clamp(max=batch.kv_heads)[:, None].to(v.dtype)
        read.append(Contents(q, k, v))
    drawn = drawn.holding(read)
    for r, result in enumerate(split(drawn, attend(subject, drawn, arguments(kind, drawn)))):
        for query, head in np.ndindex(result.shape[:2]):
            right = head // (batch.heads // batch.kv_heads)
            of_value, of_key = (float(x) for x in result[query, head, :2])
            if not (abs(of_value - right) < 0.1 and abs(of_key - right) < 0.1):
                raise Counterexample(
                    f"query head {head} of {batch.heads} should read KV head {right} of {batch.kv_heads}; "
                    f"for request {letter(r)} it took keys of {of_key:.3g} and values of {of_value:.3g}",
                    describe_batch(drawn),
                )


def huge_scores(kind: str, subject: Subject, example: Varied) -> None:
    """Small whole numbers, so that every score is exact: `level`, give or take a few."""
    batch, level = example.batch, example.change[0]
    drawn = draw(batch)
    side = 2 ** math.ceil(math.log2(math.sqrt(max(1, abs(level)) / (batch.head_dim - 1)))) if level else 0
    whole = []
    for one in drawn.requests:
        q, k = torch.full_like(one.q, math.copysign(side, level)), torch.full_like(one.k, side)
        q[..., 0], k[..., 0] = 1, (2 * one.k[..., 0]).round()
        whole.append(Contents(q, k, one.v))
    drawn = drawn.holding(whole)
    unit = torch.finfo(torch_dtype(batch.dtype)).eps
    largest = max((float(one.v.abs().max()) for one in whole if one.v.numel()), default=0.0)
    _compare(kind, subject, drawn, allowed=largest * max(1e-5, 2 * unit))


def inputs_untouched(kind: str, subject: Subject, batch: RaggedBatch) -> None:
    drawn = draw(batch)
    tensors = arguments(kind, drawn)
    before = {name: _memory(tensor).clone() for name, tensor in tensors.items()}
    attend(subject, drawn, tensors)
    for name, tensor in tensors.items():
        after = _memory(tensor)
        same = same_bits(before[name], after) if after.is_floating_point() else before[name] == after
        if not same.all():
            place = int((~same).nonzero()[0, 0]) - tensor.storage_offset()
            inside = "" if 0 <= place < tensor.numel() else ", outside of the tensor"
            raise Counterexample(
                f"it wrote to {name}: {int((~same).sum())} numbers changed, the first at index {place} of "
                f"its {tensor.numel()}{inside}",
                describe_batch(drawn),
            )


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory, what lies around it included, as one row."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
