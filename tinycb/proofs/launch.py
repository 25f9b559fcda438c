"""Calling somebody's attention and measuring what comes back: a result in words, never a traceback.

A kernel that raises, or returns something of another shape or dtype, breaks whatever theorem is being tried.
How far a result may be from the oracle is decided here too, once for all theorems.

Next: `selection.py`, which reads out of a kernel which keys it looked at.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tinycb.proofs.draw import Contents, Drawn, torch_dtype
from tinycb.proofs.oracle import Array, attend_alone, visible_keys
from tinycb.proofs.theorem import Counterexample
from tinycb.view.signs import letter

__all__ = [
    "Difference", "Subject", "attend", "call", "difference", "row_name", "same_bits", "split", "tolerance",
    "truth", "unequal",
]  # fmt: skip

Subject = Callable[..., Any]


def call(subject: Subject, *positional: Any) -> Any:
    """subject(*positional); what it raises becomes a Counterexample that says where."""
    try:
        return subject(*positional)
    except Counterexample:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[1:]  # without the line above
        place = f" in {Path(where[-1].filename).name}, line {where[-1].lineno}" if where else ""
        text = " ".join(str(error).split())
        raise Counterexample(f"it raised {type(error).__name__}{place}: {text[:400]}") from error


def attend(subject: Subject, drawn: Drawn, tensors: dict[str, Tensor]) -> Tensor:
    """Call an attention function, check what it returns, and bring that to the CPU: (T, H, D)."""
    q = tensors["q"]
    # A kernel that leaves a row of a new tensor unwritten should not find zeros there by luck.
    torch.full(q.shape, math.nan, dtype=q.dtype, device=q.device)
    out = call(subject, *tensors.values(), drawn.scale)
    if not isinstance(out, Tensor):
        raise Counterexample(f"it returned {type(out).__name__}, expected a tensor of shape {tuple(q.shape)}")
    if out.shape != q.shape or out.dtype != q.dtype:
        raise Counterexample(
            f"it returned shape {tuple(out.shape)} of {out.dtype}, not q's {tuple(q.shape)} of {q.dtype}"
        )
    return out.detach().cpu()


def split(drawn: Drawn, out: Tensor) -> list[Tensor]:
    """(T, H, D) → (q_len, H, D) for each request."""
    return list(out.split([q_len for q_len, _ in drawn.batch.rows]))


def truth(drawn: Drawn, r: int) -> Array:
    """Request r's result, from the oracle: (q_len, H, D)."""
    one = drawn.requests[r]
    q, k, v = (tensor.double().numpy() for tensor in (one.q, one.k, one.v))
    return attend_alone(q, k, v, drawn.scale)


def tolerance(drawn: Drawn, r: int, right: Array) -> float:
    """How far request r's result may be from `right`, anywhere in it.

    float32: 1e-5 of the largest value. 16 bits: three times as far as plain torch in that type is, but at
    least one unit in the last place of the largest value, since torch is exact by luck in tiny batches.
    """
    largest = float(np.abs(right).max(initial=0.0))
    if drawn.batch.dtype == "float32":
        return 1e-5 * largest
    plain = _plain_torch(drawn.requests[r], drawn.scale).double().numpy()
    unit = torch.finfo(torch_dtype(drawn.batch.dtype)).eps
    return max(3 * float(np.abs(plain - right).max(initial=0.0)) + 1e-5, unit * largest)


def _plain_torch(one: Contents, scale: float) -> Tensor:
    """Attention of one request with every intermediate in the request's own dtype: (q_len, H, D)."""
    q_len, heads, _ = one.q.shape
    seq_len, kv_heads = one.k.shape[:2]
    out = torch.zeros_like(one.q)
    keys, values = (x.repeat_interleave(heads // kv_heads, dim=1).transpose(0, 1) for x in (one.k, one.v))
    hidden = torch.ones(q_len, seq_len, dtype=torch.bool).triu(seq_len - q_len + 1)
    blind = max(0, min(q_len, q_len - seq_len))
    if blind < q_len:
        scores = (one.q.transpose(0, 1) @ keys.transpose(1, 2)) * scale  # (H, q_len, seq_len)
        weights = scores.masked_fill(hidden, -math.inf)[:, blind:].softmax(dim=-1)
        out[blind:] = (weights @ values).transpose(0, 1)
    return out


@dataclass(frozen=True)
class Difference:
    """Where a result is first off: query `query` of request `r`, in head `head`."""

    r: int
    query: int
    head: int
    expected: Array  # (D,)
    got: Array  # (D,)
    allowed: float

    def words(self, drawn: Drawn, expected: str = "expected", got: str = "got") -> str:
        """One sentence with the place and the first number that is off."""
        far = np.nan_to_num(np.abs(self.got - self.expected), nan=math.inf) > self.allowed
        dim = int(np.argmax(far))
        return (
            f"{row_name(drawn, self.r, self.query)}, head {self.head}, dim {dim}: {expected} "
            f"{self.expected[dim]:.6g}, {got} {self.got[dim]:.6g} (may differ by {self.allowed:.2g})"
        )


def row_name(drawn: Drawn, r: int, query: int) -> str:
    """A query in words: "query 1 of 2 of request B (sees keys 0–4)"."""
    q_len, seq_len = drawn.batch.rows[r]
    seen = len(visible_keys(q_len, seq_len, query))
    sees = "sees nothing" if not seen else "sees key 0" if seen == 1 else f"sees keys 0–{seen - 1}"
    return f"query {query} of {q_len} of request {letter(r)} ({sees})"


def difference(r: int, expected: Array, got: Array, allowed: float) -> Difference | None:
    """The first query and head where two results (q_len, H, D) differ by more than allowed; NaN differs."""
    far = ~(np.abs(got - expected) <= allowed)  # (q_len, H, D)
    if not far.any():
        return None
    query, head = (int(x) for x in np.argwhere(far.any(axis=-1))[0])
    return Difference(r, query, head, expected[query, head], got[query, head], allowed)


def same_bits(one: Tensor, other: Tensor) -> Tensor:
    """Elementwise: equal as bits, so that NaN equals the same NaN and 0 is not -0."""
    as_int = {4: torch.int32, 2: torch.int16}[one.element_size()]
    return one.view(as_int) == other.view(as_int)


def unequal(r: int, before: Tensor, after: Tensor, exact: bool) -> Difference | None:
    """Where two runs of request r, (q_len, H, D) each, differ: by a bit, or by more than rounding may do."""
    expected, got = before.double().numpy(), after.double().numpy()
    if not exact:
        unit = 1e-5 if before.dtype == torch.float32 else 2 * torch.finfo(before.dtype).eps
        return difference(r, expected, got, unit * float(np.abs(expected).max(initial=0.0)))
    same = same_bits(before.contiguous(), after.contiguous())
    if same.all():
        return None
    query, head, _ = (int(x) for x in (~same).nonzero()[0])
    return Difference(r, query, head, expected[query, head], got[query, head], 0.0)
