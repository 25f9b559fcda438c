"""The theorem about the mask itself, entry by entry: what `M[i, j]` means.

The subject is a function (cu_seqlens_q, cu_seqlens_k) → (T, S) bool, such as `tinycb_kernels.causal_mask`.
What uses a mask is in `attention.py`.
"""

from __future__ import annotations

import torch

from tinycb.proofs.draw import arguments, definition_of_mask, draw
from tinycb.proofs.launch import Subject, call
from tinycb.proofs.picture import describe_batch
from tinycb.proofs.strategies import RaggedBatch, ragged_batches
from tinycb.proofs.theorem import Counterexample, Theorem

__all__ = ["causal_mask_theorems"]


def causal_mask_theorems() -> tuple[Theorem, ...]:
    """The theorem about a function (cu_seqlens_q, cu_seqlens_k) → (T, S) bool, such as `causal_mask`."""
    return (
        Theorem(
            "the_mask_is_its_definition",
            "causal_mask",
            "M[i, j] is True where key j is of query i's request and not after it, and only there.",
            ragged_batches,
            mask_is_definition,
            100,
        ),
    )


def mask_is_definition(subject: Subject, batch: RaggedBatch) -> None:
    starts = arguments("varlen", draw(batch))
    got = call(subject, starts["cu_seqlens_q"], starts["cu_seqlens_k"])
    want = definition_of_mask(batch.rows)
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != torch.bool:
        what = (
            f"shape {tuple(got.shape)} of {got.dtype}"
            if isinstance(got, torch.Tensor)
            else type(got).__name__
        )
        raise Counterexample(f"it returned {what}, expected {tuple(want.shape)} of torch.bool")
    wrong = (got.cpu() != want).nonzero()
    if len(wrong):
        i, j = wrong[0].tolist()
        drawn = draw(batch)
        raise Counterexample(
            f"M[{i}, {j}] is {bool(got[i, j])}, should be {bool(want[i, j])}; {len(wrong)} of {want.numel()} "
            "entries are wrong",
            lambda: describe_batch(drawn) + "\n" + _draw_masks(want, got.cpu()),
        )


def _draw_masks(want: torch.Tensor, got: torch.Tensor, limit: int = 32) -> str:
    signs = {(True, True): "#", (False, False): ".", (True, False): "-", (False, True): "+"}
    lines = ["# both   . neither   - missed   + seen too"]
    for row, other in zip(want[:limit].tolist(), got[:limit].tolist(), strict=True):
        lines.append("  " + " ".join(signs[pair] for pair in zip(row[:limit], other[:limit], strict=True)))
    return "\n".join(lines)
