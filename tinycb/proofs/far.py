"""Offsets past 2^31: the one theorem that needs a huge tensor, of which only the end is ever touched.

A product of a block number and a stride that is computed in 32 bits wraps around there, and the kernel reads,
or writes, somewhere else, or the process dies: run a subject that is not known to be right in a worker.

Next: `invariance.py`.
"""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tinycb.proofs.draw import Contents, draw
from tinycb.proofs.launch import Subject, attend, difference, tolerance, truth
from tinycb.proofs.strategies import KVLayout, RaggedBatch
from tinycb.proofs.theorem import CannotTry, Counterexample, Scope

__all__ = ["FAR", "examples_far_away", "huge_tensor", "keys_far_away"]

FAR = 2**31  # numbers in a tensor, from where 32-bit offsets go wrong


def huge_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Memory that is promised and not touched. Raises CannotTry if not even the promise can be had."""
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError):
        gigabytes = math.prod(shape) * dtype.itemsize / 1e9
        raise CannotTry(f"there is no room for a tensor of {gigabytes:.1f} GB, mostly untouched") from None


def examples_far_away(paged: bool, scope: Scope) -> SearchStrategy[RaggedBatch]:
    """One short request; what comes before its keys is a matter of placing them."""
    layout = KVLayout(block_size=16) if paged else None
    heads, kv_heads = scope.heads[0]
    row = st.sampled_from(((1, 17), (3, 40)))
    return st.builds(
        lambda row, dtype: RaggedBatch(
            (row,), heads, kv_heads, 64, dtype=dtype, device=scope.device, layout=layout
        ),
        row,
        st.sampled_from(scope.dtypes),
    )


def keys_far_away(kind: str, subject: Subject, batch: RaggedBatch) -> None:
    """One tensor is both keys and values, far longer than 2^31, and never touched but at its end."""
    drawn = draw(batch)
    one = drawn.requests[0]
    drawn = drawn.holding([Contents(one.q, one.k, one.k)])
    row, seq_len = batch.kv_heads * batch.head_dim, len(one.k)
    size = batch.layout.block_size if batch.layout else 1
    blocks = -(-seq_len // size)
    total = FAR // (row * size) + blocks + 1
    memory = huge_tensor((total, size, *one.k.shape[1:]), one.k.dtype, batch.device)
    memory[-blocks:] = 0
    flat = memory.view(-1, *one.k.shape[1:])
    first = len(flat) - (blocks * size if batch.layout else seq_len)
    flat[first : first + seq_len] = one.k.to(batch.device)
    tensors = {"q": one.q.clone()}
    if batch.layout:
        tensors |= {"k_cache": memory, "v_cache": memory}
        tensors["block_table"] = torch.arange(total - blocks, total, dtype=torch.int32)[None]
        tensors["query_start_loc"] = torch.tensor([0, len(one.q)], dtype=torch.int32)
        tensors["seq_lens"] = torch.tensor([seq_len], dtype=torch.int32)
    else:  # a first request that owns nearly all of the keys and has no queries
        tensors |= {"k": flat, "v": flat}
        tensors["cu_seqlens_q"] = torch.tensor([0, 0, len(one.q)], dtype=torch.int32)
        tensors["cu_seqlens_k"] = torch.tensor([0, first, len(flat)], dtype=torch.int32)
    tensors = {name: tensor.to(batch.device) for name, tensor in tensors.items()}
    result = attend(subject, drawn, tensors).double().numpy()
    right = truth(drawn, 0)
    found = difference(0, right, result, tolerance(drawn, 0, right))
    if found is not None:
        where = (
            f"in block {total - blocks} of {total}" if batch.layout else f"from row {first} of {len(flat)}"
        )
        raise Counterexample(f"keys {where}, past 2^31 numbers: {found.words(drawn)}")
