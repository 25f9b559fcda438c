"""Theorems about the cache write: a subject called as write_kv(k, v, k_cache, v_cache, slot_mapping).

A copy has no rounding, so everything here is asked for bit by bit, NaN, -0 and denormals included, and the
whole cache is looked at, with the memory around it, not only the slots that were meant.

Next: `registry.py`, where all theorems are found by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from tinycb.proofs.draw import guarded, torch_dtype
from tinycb.proofs.far import FAR, huge_tensor
from tinycb.proofs.launch import Subject, call, same_bits
from tinycb.proofs.memory import STRIDES, restride
from tinycb.proofs.strategies import CacheWrite, cache_writes
from tinycb.proofs.theorem import Counterexample, Scope, Theorem

__all__ = ["write_kv_theorems"]

SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 1e-7, 65504.0)


def write_kv_theorems() -> tuple[Theorem, ...]:
    """All theorems about a cache write."""

    def theorem(
        name: str, statement: str, check: Callable[..., None], count: int, examples: Any = None
    ) -> Theorem:
        return Theorem(name, "write_kv", statement, examples or cache_writes, check, count)

    return (
        theorem(
            "writes_land_in_their_slots_only",
            "Every token's key and value are in their slot bit for bit, and nothing else has changed.",
            partial(_write, None), 60,
        ),
        theorem(
            "minus_one_slots_are_skipped",
            "A token with a negative slot writes nothing, neither to the last slot nor anywhere else.",
            partial(_write, None), 40, _with_negative_slots,
        ),
        theorem(
            "inputs_are_left_alone",
            "k, v and slot_mapping are not written to, nor the memory just before and behind them.",
            inputs_untouched, 20,
        ),
        *(
            theorem(
                f"any_strides_give_the_same_{name.replace(' ', '_')}",
                f"Strides are used, of tensors laid out {how}.",
                partial(_write, name), 15,
            )
            for name, how in STRIDES.items()
        ),
        theorem(
            "offsets_are_64_bit",
            "Slots over 2^31 numbers into a cache are found: offsets are widened, then multiplied.",
            far_slots, 2, _far,
        ),
    )  # fmt: skip


def _with_negative_slots(scope: Scope) -> SearchStrategy[CacheWrite]:
    def skip_some(write: CacheWrite, every: int, slot: int) -> CacheWrite:
        slots = tuple(slot if t % every == 0 else s for t, s in enumerate(write.slots))
        return CacheWrite(slots, *(getattr(write, name) for name in CacheWrite.__slots__[1:]))

    return st.builds(skip_some, cache_writes(scope), st.integers(1, 4), st.sampled_from((-1, -2, -(2**40))))


def _far(scope: Scope) -> SearchStrategy[CacheWrite]:
    dtypes = st.sampled_from(scope.dtypes)
    return dtypes.map(lambda dtype: CacheWrite((3, -1, 17), 2, 16, 2, 64, dtype, scope.device))


def draw_write(write: CacheWrite) -> dict[str, Tensor]:
    """The tensors of a call, by name, in positional order. Caches and tokens hold numbers of every kind."""
    random = np.random.default_rng(write.seed)

    def numbers(*shape: int) -> Tensor:
        values = random.standard_normal(shape, np.float32)
        special = random.choice(np.array(SPECIAL, np.float32), shape)
        drawn = np.where(random.random(shape) < 0.1, special, values)
        return guarded(torch.from_numpy(drawn).to(torch_dtype(write.dtype)), 0.5, write.device)

    token = (len(write.slots), write.kv_heads, write.head_dim)
    cache = (write.num_blocks, write.block_size, write.kv_heads, write.head_dim)
    return {
        "k": numbers(*token),
        "v": numbers(*token),
        "k_cache": numbers(*cache),
        "v_cache": numbers(*cache),
        "slot_mapping": torch.tensor(write.slots, dtype=torch.int64, device=write.device),
    }


def _write(layout: str | None, subject: Subject, write: CacheWrite) -> None:
    """Write, then look at every slot of both caches. layout: one of STRIDES, None for contiguous tensors."""
    tensors = draw_write(write)
    if layout is not None:
        slots = tensors.pop("slot_mapping")
        tensors = restride(layout, tensors) | {"slot_mapping": slots}
    caches = ("k_cache", "v_cache")
    expected = {name: tensors[name].cpu().clone() for name in caches}
    around = {name: _around(tensors[name], *(tensors[cache] for cache in caches)) for name in caches}
    for name, token in zip(caches, ("k", "v"), strict=True):
        for t, slot in enumerate(write.slots):
            if slot >= 0:
                expected[name][slot // write.block_size, slot % write.block_size] = tensors[token][t].cpu()
    call(subject, *tensors.values())
    for name in caches:
        _look(write, name, expected[name], tensors[name].cpu())
        if not same_bits(around[name], _around(tensors[name], *(tensors[cache] for cache in caches))).all():
            raise Counterexample(
                f"it wrote to memory around {name}, or between its numbers", _describe(write)
            )


def _around(tensor: Tensor, *owners: Tensor) -> Tensor:
    """The memory a tensor lies in, without the numbers of its owners (itself by default), as one row."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    others = torch.ones(size, dtype=torch.bool)
    for owner in owners or (tensor,):
        if owner.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
            others.as_strided(owner.shape, owner.stride(), owner.storage_offset()).fill_(False)
    return tensor.as_strided((size,), (1,), 0).cpu()[others]


def _look(write: CacheWrite, name: str, expected: Tensor, got: Tensor) -> None:
    """Raise Counterexample, in words, if any slot of one cache is not what it should be."""
    wrong = (~same_bits(expected.contiguous(), got.contiguous())).flatten(2).any(dim=-1).nonzero()
    if not len(wrong):
        return
    block, offset = wrong[0].tolist()
    slot = block * write.block_size + offset
    head, dim = (
        (~same_bits(expected[block, offset].contiguous(), got[block, offset].contiguous()))
        .nonzero()[0]
        .tolist()
    )
    values = (
        f"expected {float(expected[block, offset, head, dim])}, got {float(got[block, offset, head, dim])}"
    )
    place = f"{name}: slot {slot} (block {block}, offset {offset}), head {head}, dim {dim}: {values}"
    if slot in write.slots:
        words = f"{place}; token {write.slots.index(slot)} belongs there"
    else:
        words = f"{place}; no token belongs there, so nothing should have changed"
    more = f" ({len(wrong)} slots are wrong)" if len(wrong) > 1 else ""
    raise Counterexample(
        words + more, _describe(write, {write_slot(write, place) for place in wrong.tolist()})
    )


def write_slot(write: CacheWrite, place: list[int]) -> int:
    """The slot of a [block, offset]."""
    return place[0] * write.block_size + place[1]


def _describe(write: CacheWrite, wrong: set[int] | None = None) -> str:
    """Which token goes where, and a picture of the cache: `o` to be written, `!` wrong."""
    where = [f"{t}→{slot}" if slot >= 0 else f"{t} skipped" for t, slot in enumerate(write.slots[:8])]
    lines = [
        f"tokens: {len(write.slots)}; blocks: {write.num_blocks} of {write.block_size} slots; KV heads: "
        f"{write.kv_heads}; head dim {write.head_dim}, {write.dtype}",
        f"  slot_mapping, token→slot: {', '.join(where)}{' …' if len(write.slots) > 8 else ''}",
    ]
    blocks = sorted({slot // write.block_size for slot in wrong or set()})[:6]
    for block in blocks:
        slots = range(block * write.block_size, (block + 1) * write.block_size)
        signs = "".join(
            "!" if slot in (wrong or set()) else "o" if slot in write.slots else "." for slot in slots
        )
        lines.append(f"  block {block:<4} {signs[:64]}")
    return "\n".join(lines + (["  ! wrong   o written as it should be   . untouched"] if blocks else []))


def inputs_untouched(subject: Subject, write: CacheWrite) -> None:
    tensors = draw_write(write)
    names = ("k", "v", "slot_mapping")
    before = {name: tensors[name].clone() for name in names}
    around = {name: _around(tensors[name]) for name in names[:2]}
    call(subject, *tensors.values())
    for name in names:
        same = (
            before[name] == tensors[name]
            if name == "slot_mapping"
            else same_bits(before[name], tensors[name])
        )
        if not same.all():
            raise Counterexample(
                f"it wrote to {name}: {int((~same).sum())} numbers changed", _describe(write)
            )
        if name in around and not same_bits(around[name], _around(tensors[name])).all():
            raise Counterexample(f"it wrote to memory around {name}", _describe(write))


def far_slots(subject: Subject, write: CacheWrite) -> None:
    """One huge tensor, never touched but at its end, is the cache of the keys and of the values."""
    tensors = draw_write(write)
    block = write.block_size * write.kv_heads * write.head_dim
    total = FAR // block + write.num_blocks
    shape = (total, write.block_size, write.kv_heads, write.head_dim)
    memory = huge_tensor(shape, tensors["k"].dtype, write.device)
    end = memory[-write.num_blocks :]
    end.zero_()
    first = (total - write.num_blocks) * write.block_size
    slots = torch.tensor([slot if slot < 0 else first + slot for slot in write.slots], device=write.device)
    call(subject, tensors["k"], tensors["k"], memory, memory, slots)
    expected = torch.zeros(end.shape, dtype=end.dtype)
    for t, slot in enumerate(write.slots):
        if slot >= 0:
            expected[slot // write.block_size, slot % write.block_size] = tensors["k"][t].cpu()
    if not same_bits(expected, end.cpu()).all():
        raise Counterexample(
            f"slots from {first} on, past 2^31 numbers into the cache, do not hold what was written to them",
            _describe(write),
        )
