"""Batches of unequal requests, the three ways to attend, and an oracle that shares no code with the kernels.

Every cache slot that belongs to no request holds NaN, every unused entry of a block table -1, and a request's
blocks lie anywhere in the cache. So reading what is nobody's shows in the result.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tinycb_kernels import (
    PagedPlan,
    causal_mask,
    mask_attention,
    paged_attention,
    plan_paged,
    varlen_attention,
)

# Each path with each backend it has, as parameters of a test.
KERNEL_WAYS = [(path, name) for path in ("varlen", "paged") for name in ("torch", "numba", "triton")]
WAYS = [("mask", "torch"), *KERNEL_WAYS]


@dataclass(frozen=True)
class Backend:
    name: str
    device: torch.device
    interpreted: bool


@dataclass(frozen=True)
class Batch:
    q: Tensor  # (T, H, D)
    k: Tensor  # (S, KH, D)
    v: Tensor  # (S, KH, D)
    cu_seqlens_q: Tensor  # (R+1,)
    cu_seqlens_k: Tensor  # (R+1,)
    seq_lens: Tensor  # (R,)
    k_cache: Tensor  # (NB, BS, KH, D)
    v_cache: Tensor  # (NB, BS, KH, D)
    block_table: Tensor  # (R, MB)
    scale: float

    def to(self, device: torch.device) -> "Batch":
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def only(self, chosen: list[int]) -> "Batch":
        """These requests, in this order, with the same cache."""
        rows = [requests(self)[r] for r in chosen]
        q_rows = [torch.arange(q.start, q.stop) for q, _ in rows]
        k_rows = [torch.arange(k.start, k.stop) for _, k in rows]
        return replace(
            self,
            q=self.q[torch.cat(q_rows)],
            k=self.k[torch.cat(k_rows)],
            v=self.v[torch.cat(k_rows)],
            cu_seqlens_q=offsets([len(x) for x in q_rows]),
            cu_seqlens_k=offsets([len(x) for x in k_rows]),
            seq_lens=self.seq_lens[chosen],
            block_table=self.block_table[chosen],
        )

    def attend(self, path: str, backend: Backend, **more: Any) -> Tensor:
        """Run one of the three paths there, and bring the result back. more: keywords of the call."""
        return self.to(backend.device).launch(path, backend, **more).cpu()

    def launch(self, path: str, backend: Backend, **more: Any) -> Tensor:
        """Run one of the three paths where the tensors are."""
        more = {"backend": backend.name, **more}
        if path == "mask":
            mask = causal_mask(self.cu_seqlens_q, self.cu_seqlens_k)
            return mask_attention(self.q, self.k, self.v, mask, self.scale)
        if path == "varlen":
            return varlen_attention(
                self.q, self.k, self.v, self.cu_seqlens_q, self.cu_seqlens_k, self.scale, **more
            )  # fmt: skip
        return paged_attention(
            self.q, self.k_cache, self.v_cache, self.block_table, self.cu_seqlens_q, self.seq_lens,
            self.scale, **more,
        )  # fmt: skip

    def plan(self) -> PagedPlan:
        """A plan for the paged Triton kernel."""
        heads, kv_heads, dim = self.q.shape[1], self.k.shape[1], self.q.shape[2]
        return plan_paged(
            self.cu_seqlens_q.tolist(), self.seq_lens.tolist(), num_heads=heads, num_kv_heads=kv_heads,
            head_dim=dim, dtype=self.q.dtype, device=self.q.device,
        )  # fmt: skip


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int32)


def make_batch(
    lengths: list[tuple[int, int]],
    heads: tuple[int, int] = (4, 2),
    dim: int = 32,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Batch:
    """Random numbers of unit scale for requests of these (q_len, seq_len)."""
    generator = torch.Generator().manual_seed(seed)
    q_lens, seq_lens = [q for q, _ in lengths], [s for _, s in lengths]

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    q = randn(sum(q_lens), heads[0], dim)
    k, v = randn(sum(seq_lens), heads[1], dim), randn(sum(seq_lens), heads[1], dim)
    return page(q, k, v, q_lens, seq_lens, block_size, generator)


def page(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_lens: list[int],
    seq_lens: list[int],
    block_size: int,
    generator: torch.Generator,
    scale: float | None = None,
) -> Batch:
    """Put packed keys and values into blocks that lie anywhere in a cache with a few blocks to spare."""
    used = [-(-length // block_size) for length in seq_lens]
    num_blocks, max_blocks = sum(used) + 3, max([*used, 1])
    free = torch.randperm(num_blocks, generator=generator).to(torch.int32)
    block_table = torch.full((len(seq_lens), max_blocks), -1, dtype=torch.int32)
    k_cache = torch.full((num_blocks, block_size, *k.shape[1:]), torch.nan, dtype=k.dtype)
    v_cache = k_cache.clone()
    taken = start = 0
    for r, (blocks, length) in enumerate(zip(used, seq_lens, strict=True)):
        block_table[r, :blocks] = free[taken : taken + blocks]
        for pos in range(length):
            place = block_table[r, pos // block_size], pos % block_size
            k_cache[place], v_cache[place] = k[start + pos], v[start + pos]
        taken, start = taken + blocks, start + length
    return Batch(
        q, k, v, offsets(q_lens), offsets(seq_lens), torch.tensor(seq_lens, dtype=torch.int32),
        k_cache, v_cache, block_table, q.shape[2] ** -0.5 if scale is None else scale,
    )  # fmt: skip


def requests(batch: Batch) -> list[tuple[slice, slice]]:
    """The rows of q and of k that belong to each request."""
    q_starts, k_starts = batch.cu_seqlens_q.tolist(), batch.cu_seqlens_k.tolist()
    return [
        (slice(q_starts[r], q_starts[r + 1]), slice(k_starts[r], k_starts[r + 1]))
        for r in range(len(q_starts) - 1)
    ]


def oracle(batch: Batch) -> np.ndarray:
    """The definition, query by query, in float64: (T, H, D)."""
    q, k, v = (x.to(torch.float64).numpy() for x in (batch.q, batch.k, batch.v))
    group = q.shape[1] // k.shape[1]
    out = np.zeros(q.shape)
    for q_rows, k_rows in requests(batch):
        q_len, seq_len = q_rows.stop - q_rows.start, k_rows.stop - k_rows.start
        for i in range(max(0, q_len - seq_len), q_len):
            visible = slice(k_rows.start, k_rows.start + seq_len - q_len + i + 1)
            for head in range(q.shape[1]):
                scores = k[visible, head // group] @ q[q_rows.start + i, head] * batch.scale
                weights = np.exp(scores - scores.max())
                out[q_rows.start + i, head] = weights @ v[visible, head // group] / weights.sum()
    return out


def torch_error(batch: Batch, reference: np.ndarray) -> float:
    """How far torch's own attention is from the reference when it works in the batch's dtype."""
    worst = 0.0
    for q_rows, k_rows in requests(batch):
        q, k, v = batch.q[q_rows], batch.k[k_rows], batch.v[k_rows]
        hidden = max(0, len(q) - len(k))  # queries that see nothing, which torch does not define
        if len(q) == hidden:
            continue
        mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))[hidden:]
        result = torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(0, 1)[None] for x in (q[hidden:], k, v)), mask, scale=batch.scale, enable_gqa=True
        )[0].transpose(0, 1)
        error = np.abs(result.double().numpy() - reference[q_rows][hidden:])
        worst = max(worst, error.max())
    return worst


def assert_right(result: Tensor, batch: Batch, reference: np.ndarray | None = None) -> None:
    """Equal to the oracle: in float32 to 1e-5 of the largest value, in 16 bits to 3 times torch's error."""
    assert result.dtype == batch.q.dtype
    assert result.shape == batch.q.shape
    if not result.numel():
        return
    reference = oracle(batch) if reference is None else reference
    assert torch.isfinite(result).all(), (
        "a NaN or infinity in the result: something was read that is nobody's"
    )
    error = np.abs(result.double().numpy() - reference).max()
    if batch.q.dtype == torch.float32:
        allowed = 1e-5 * max(np.abs(reference).max(), 1e-30)
    else:
        allowed = 3 * torch_error(batch, reference) + 1e-5
    assert error <= allowed, f"off by {error:.2e}, {allowed:.2e} are allowed"
    for q_rows, k_rows in requests(batch):
        blind = max(0, (q_rows.stop - q_rows.start) - (k_rows.stop - k_rows.start))
        assert not result[q_rows][:blind].any(), "a query that sees no key must return 0"
