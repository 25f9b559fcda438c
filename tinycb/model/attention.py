"""Three ways for a query to find its keys, behind one call.

All three first write the step's new K and V through `slot_mapping` into the one paged cache. A step with two
requests, A decoding its 6th token and B running a prompt of 3, block_size 4:

    slots        block 0          block 1          block 2
              [ b0 b1 b2 .. ]  [ a4 a5 .. .. ]  [ a0 a1 a2 a3 ]        A's table [2, 1], B's table [0]

    mask      gather  a0 a1 a2 a3 a4 a5 b0 b1 b2   (S,)        q a5  # # # # # # . . .
              and say in a (T, S) matrix who sees what         q b0  . . . . . . # . .
                                                               q b1  . . . . . . # # .
                                                               q b2  . . . . . . # # #

    varlen    gather  a0 a1 a2 a3 a4 a5 b0 b1 b2   (S,)        cu_seqlens_q  0 1 4
              and say it with two lists of offsets             cu_seqlens_k  0 6 9

    paged     gather nothing: read  a0…a3 in block 2,          block_table   2 1    query_start_loc  0 1 4
              a4 a5 in block 1,  b0 b1 b2 in block 0                         0 -    seq_lens         6 3

What a step needs for its path is built once (`AttentionMetadata.build`); a layer then makes one call. The
arithmetic is in `tinycb_kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tinycb.model.kv_cache import KVCache
from tinycb.model.rope import rotate
from tinycb.packing import PackedBatch
from tinycb_kernels import (
    PagedPlan,
    causal_mask,
    mask_attention,
    paged_attention,
    plan_paged,
    varlen_attention,
    write_kv,
)
from tinycb_kernels.backends import choose_backend
from tinycb_kernels.paged_step import PagedStep, can_step

__all__ = ["AttentionMetadata", "attention", "live_slots"]


@dataclass(slots=True)
class AttentionMetadata:
    """One step's index tensors, on the device. `path` is "mask", "varlen" or "paged"; each uses some."""

    path: str
    backend: str
    slot_mapping: Tensor  # (T,) int64
    query_start_loc: Tensor  # (R+1,) int32
    seq_lens: Tensor  # (R,) int32
    block_table: Tensor  # (R, MB) int32
    live_slots: Tensor | None = None  # (S,) int64: mask and varlen
    cu_seqlens_k: Tensor | None = None  # (R+1,) int32: mask and varlen
    mask: Tensor | None = None  # (T, S) bool: mask
    step: PagedStep | None = None  # paged, where a CPU does all of it in one call
    plan: PagedPlan | None = None  # paged, where Triton does it: who does what, laid out once a step
    lengths: tuple[np.ndarray, np.ndarray] | None = None  # query_start_loc and seq_lens, on the host

    @classmethod
    def build(cls, batch: PackedBatch, path: str, backend: str, cache: KVCache) -> AttentionMetadata:
        device = cache.k.device
        meta = cls(
            path=path,
            backend=backend,
            slot_mapping=torch.from_numpy(batch.slot_mapping).to(device),
            query_start_loc=torch.from_numpy(batch.query_start_loc).to(device),
            seq_lens=torch.from_numpy(batch.seq_lens).to(device),
            block_table=torch.from_numpy(batch.block_table).to(device),
            lengths=(batch.query_start_loc, batch.seq_lens),
        )
        if path != "paged":
            offsets = np.zeros(len(batch.seq_lens) + 1, dtype=np.int32)  # (R+1,)
            np.cumsum(batch.seq_lens, out=offsets[1:])
            meta.cu_seqlens_k = cu_seqlens_k = torch.from_numpy(offsets).to(device)
            meta.live_slots = torch.from_numpy(live_slots(batch, cache.block_size)).to(device)
            if path == "mask":
                meta.mask = causal_mask(meta.query_start_loc, cu_seqlens_k)  # (T, S)
        elif can_step(backend, device, cache.k.dtype):
            meta.step = PagedStep(meta.slot_mapping, meta.block_table, meta.query_start_loc, meta.seq_lens)
        return meta

    def plan_for(self, q: Tensor, kv_heads: int) -> PagedPlan | None:
        """The step's plan for queries (T, H, D), made when the first layer asks; None where none is used."""
        if self.plan is None and self.lengths and choose_backend(self.backend, q.device) == "triton":
            self.plan = plan_paged(
                *self.lengths, num_heads=q.shape[1], num_kv_heads=kv_heads, head_dim=q.shape[2],
                dtype=q.dtype, device=q.device,
            )  # fmt: skip
        return self.plan


def live_slots(batch: PackedBatch, block_size: int) -> np.ndarray:
    """Where the K and V of every request's tokens lie, request after request, in order: (S,)."""
    seq_lens = batch.seq_lens.astype(np.int64)  # (R,)
    row_of = np.repeat(np.arange(len(seq_lens)), seq_lens)  # (S,)
    first = np.cumsum(seq_lens) - seq_lens  # (R,)
    position = np.arange(len(row_of)) - first[row_of]  # (S,)
    physical = batch.block_table[row_of, position // block_size].astype(np.int64)  # (S,)
    return np.asarray(physical * block_size + position % block_size)


def attention(
    qkv: Tensor, cos: Tensor, sin: Tensor, layer: int, cache: KVCache, meta: AttentionMetadata
) -> Tensor:
    """Rotate queries and keys, write keys and values to the cache, attend by the step's path → (T, H, D).

    qkv: (T, H + 2·KH, D), which is used up. cos, sin: (T, D/2), of each token's position. The index tensors
    are not checked again here: they come from `packing.py`, and the engine's invariants stand behind them.
    """
    k_cache, v_cache = cache.layer(layer)  # (NB, BS, KH, D)
    if meta.step is not None:
        return meta.step(qkv, cos, sin, k_cache, v_cache)

    kv_heads = k_cache.shape[2]
    q, k, v = qkv.split([qkv.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)  # (T, H or KH, D)
    q, k, v = (x.to(k_cache.dtype) for x in (rotate(q, cos, sin), rotate(k, cos, sin), v))
    write_kv(k, v, k_cache, v_cache, meta.slot_mapping, backend=meta.backend, validate=False)
    if meta.path == "paged":
        return paged_attention(
            q,
            k_cache,
            v_cache,
            meta.block_table,
            meta.query_start_loc,
            meta.seq_lens,
            backend=meta.backend,
            validate=False,
            plan=meta.plan_for(q, kv_heads),
        )
    assert meta.live_slots is not None
    assert meta.cu_seqlens_k is not None
    keys = k_cache.flatten(0, 1)[meta.live_slots]  # (S, KH, D)
    values = v_cache.flatten(0, 1)[meta.live_slots]  # (S, KH, D)
    if meta.path == "varlen":
        return varlen_attention(
            q, keys, values, meta.query_start_loc, meta.cu_seqlens_k, backend=meta.backend, validate=False
        )
    assert meta.mask is not None
    return mask_attention(q, keys, values, meta.mask)
