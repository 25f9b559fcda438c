"""The paged Triton kernel against torch's own attention, on the shape of Llama 3 8B: decode and prompts.

torch gets what it likes best: dense keys, all requests of a decode batch of one length, each shape compiled
by itself. Our keys lie in blocks of 16, anywhere. All are given the same numbers, and their answers are
compared. A contender that torch lacks, or that fails, is a row that says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_machine import Machine
from tinycb_kernels import paged_attention, plan_paged

BLOCK_SIZE = 16
Note = Callable[[dict[str, Any]], None]
# Compiled anew for each shape, which takes seconds: FlexAttention runs on these only.
FLEX_DECODES = ((1, 1024), (1, 16384), (16, 4096), (64, 1024), (64, 4096), (256, 4096))


@dataclass
class Work:
    """One batch, packed and paged. K and V of request r are rows k_starts[r] … k_starts[r+1] - 1."""

    lengths: list[tuple[int, int]]  # (q_len, seq_len)
    q: Tensor  # (T, H, D)
    k: Tensor  # (S, KH, D)
    v: Tensor  # (S, KH, D)

    @property
    def starts(self) -> tuple[list[int], list[int]]:
        q_starts, k_starts = [0], [0]
        for q_len, seq_len in self.lengths:
            q_starts.append(q_starts[-1] + q_len)
            k_starts.append(k_starts[-1] + seq_len)
        return q_starts, k_starts

    @property
    def bytes_moved(self) -> int:
        """Each query, key, value and result once."""
        return 2 * self.q.nbytes + self.k.nbytes + self.v.nbytes

    @property
    def flops(self) -> int:
        """Two products of D numbers for every query head and key that it sees."""
        pairs = sum(q * s - q * (q - 1) // 2 for q, s in self.lengths)
        return 4 * self.q.shape[1] * self.q.shape[2] * pairs


Contender = Callable[[Work], Callable[[], Tensor]]


def make(lengths: list[tuple[int, int]], machine: Machine) -> Work:
    heads, kv_heads, dim = machine.pick((32, 8, 128), (2, 1, 16))
    dtype = machine.pick(torch.bfloat16, torch.float32)

    def numbers(rows: int, heads: int) -> Tensor:
        return torch.randn(rows, heads, dim, device=machine.device, dtype=dtype)

    tokens, keys = (sum(column) for column in zip(*lengths, strict=True))
    return Work(lengths, numbers(tokens, heads), numbers(keys, kv_heads), numbers(keys, kv_heads))


# ---- contenders: each returns a function that runs it, or raises if it cannot ------------------------------


def ours(work: Work) -> Callable[[], Tensor]:
    """`paged_attention`, its blocks shuffled over the cache, its plan made beforehand as a step does."""
    device, (q_starts, _) = work.q.device, work.starts
    used = [-(-seq_len // BLOCK_SIZE) for _, seq_len in work.lengths]
    order = torch.randperm(sum(used), device=device).to(torch.int32)
    table = torch.zeros(len(used), max(used), dtype=torch.int32, device=device)
    k_cache = torch.empty(sum(used), BLOCK_SIZE, *work.k.shape[1:], dtype=work.k.dtype, device=device)
    v_cache = torch.empty_like(k_cache)
    blocks = keys = 0
    for r, (count, (_, seq_len)) in enumerate(zip(used, work.lengths, strict=True)):
        table[r, :count] = mine = order[blocks : blocks + count]
        for cache_, packed in ((k_cache, work.k), (v_cache, work.v)):
            room = torch.zeros(count * BLOCK_SIZE, *packed.shape[1:], dtype=packed.dtype, device=device)
            room[:seq_len] = packed[keys : keys + seq_len]
            cache_[mine.long()] = room.unflatten(0, (count, BLOCK_SIZE))
        blocks, keys = blocks + count, keys + seq_len
    seq_lens = [seq_len for _, seq_len in work.lengths]
    plan = plan_paged(
        q_starts, seq_lens, num_heads=work.q.shape[1], num_kv_heads=work.k.shape[1], head_dim=work.q.shape[2],
        dtype=work.q.dtype, device=device,
    )  # fmt: skip
    offsets, lens = (torch.tensor(x, dtype=torch.int32, device=device) for x in (q_starts, seq_lens))
    out = torch.empty_like(work.q)
    more: dict[str, Any] = {"backend": "triton", "out": out, "validate": False, "plan": plan}
    return lambda: paged_attention(work.q, k_cache, v_cache, table, offsets, lens, **more)


def sdpa_decode(work: Work) -> Callable[[], Tensor]:
    q, k, v = dense(work)
    return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True).squeeze(2)


def flex_decode(work: Work) -> Callable[[], Tensor]:
    q, k, v = dense(work)
    flex = compiled_flex()
    return lambda: flex(q, k, v, enable_gqa=True).squeeze(2)


def dense(work: Work) -> tuple[Tensor, Tensor, Tensor]:
    """A decode batch of one length: q (B, H, 1, D), k and v (B, KH, S, D), contiguous."""
    number, seq_len = len(work.lengths), work.lengths[0][1]
    k, v = (x.unflatten(0, (number, seq_len)).transpose(1, 2).contiguous() for x in (work.k, work.v))
    return work.q.unsqueeze(2), k, v


def sdpa_loop(work: Work) -> Callable[[], Tensor]:
    """A call a request: SDPA knows no ragged batch."""
    from torch.nn.attention.bias import causal_lower_right

    calls: list[tuple[Any, Any, Any, dict[str, Any]]] = []
    for q, k, v in requests(work):
        more: dict[str, Any] = {"is_causal": True} if len(q) == len(k) else {}
        if len(q) > 1 and not more:
            more = {"attn_mask": causal_lower_right(len(q), len(k))}
        q, k, v = (x.transpose(0, 1)[None].contiguous() for x in (q, k, v))
        calls.append((q, k, v, more))

    def run() -> Tensor:
        parts = [F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **m)[0] for q, k, v, m in calls]
        return torch.cat(parts, dim=1).transpose(0, 1)

    return run


def flex_packed(work: Work) -> Callable[[], Tensor]:
    """One call over the packed rows, with a block mask of which request and position each row is."""
    from torch.nn.attention.flex_attention import create_block_mask

    device = work.q.device
    r_of_q, last = (torch.empty(len(work.q), dtype=torch.int32, device=device) for _ in range(2))
    r_of_k, pos = (torch.empty(len(work.k), dtype=torch.int32, device=device) for _ in range(2))
    q_starts, k_starts = work.starts
    for r, (q_len, seq_len) in enumerate(work.lengths):
        r_of_q[q_starts[r] : q_starts[r + 1]] = r
        r_of_k[k_starts[r] : k_starts[r + 1]] = r
        last[q_starts[r] : q_starts[r + 1]] = torch.arange(seq_len - q_len, seq_len, device=device)
        pos[k_starts[r] : k_starts[r + 1]] = torch.arange(seq_len, device=device)

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (r_of_q[i] == r_of_k[j]) & (pos[j] <= last[i])

    mask = create_block_mask(sees, None, None, len(work.q), len(work.k), device=device.type)
    q, k, v = (x.transpose(0, 1)[None].contiguous() for x in (work.q, work.k, work.v))
    flex = compiled_flex()
    return lambda: flex(q, k, v, block_mask=mask, enable_gqa=True)[0].transpose(0, 1)


def torch_varlen(work: Work) -> Callable[[], Tensor]:
    """`torch.nn.attention.varlen`, whose arguments differ from version to version."""
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    more: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    k, v = work.k, work.v
    if "enable_gqa" in known:
        more["enable_gqa"] = True
    else:
        k, v = (x.repeat_interleave(work.q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    q_starts, k_starts = (torch.tensor(x, dtype=torch.int32, device=work.q.device) for x in work.starts)
    longest = [max(column) for column in zip(*work.lengths, strict=True)]
    attend: Callable[..., Any] = varlen_attn
    return lambda: attend(work.q, k, v, q_starts, k_starts, *longest, **more)


@cache
def compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    plain: Callable[..., Tensor] = flex_attention
    if not torch.cuda.is_available():
        return plain  # a dry run
    torch._dynamo.config.recompile_limit = 64
    compiled: Callable[..., Tensor] = torch.compile(plain, dynamic=False)
    return compiled


def requests(work: Work) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    q_starts, k_starts = work.starts
    for r in range(len(work.lengths)):
        keys = slice(k_starts[r], k_starts[r + 1])
        yield work.q[q_starts[r] : q_starts[r + 1]], work.k[keys], work.v[keys]


# ---- the two parts -----------------------------------------------------------------------------------------


def decode(machine: Machine, note: Note) -> None:
    """Every request one token: B 1 … 256, contexts 1k … 16k."""
    for number in machine.pick((1, 4, 16, 64, 256), (1, 2)):
        for context in machine.pick((1024, 4096, 16384), (8, 40)):
            work = make([(1, context)] * number, machine)
            contenders: dict[str, Contender] = {"tinycb paged": ours, "SDPA": sdpa_decode}
            if machine.is_dry or (number, context) in FLEX_DECODES:
                contenders["FlexAttention"] = flex_decode
            if number == 1 or context == 4096:
                contenders["torch varlen"] = torch_varlen
            race(f"B {number}, context {context}", work, contenders, machine, note)


def prompts(machine: Machine, note: Note) -> None:
    """Prompts, chunks, and a chunk beside decoding requests."""
    batches: dict[str, list[tuple[int, int]]] = machine.pick(
        {
            "one prompt of 8192": [(8192, 8192)],
            "16 prompts of 512": [(512, 512)] * 16,
            "a chunk of 2048 at 14k": [(2048, 16384)],
            "a chunk of 512 beside 64 decodes at 4k": [(512, 2048), *[(1, 4096)] * 64],
            "ragged prompts": [(n, n) for n in (37, 129, 300, 511, 777, 1025, 1500, 2049, 2222)],
        },
        {"a prompt of 20": [(20, 20)], "a chunk beside a decode": [(4, 9), (1, 40)]},
    )
    contenders: dict[str, Contender] = {
        "tinycb paged": ours, "SDPA, a call a request": sdpa_loop, "FlexAttention": flex_packed,
        "torch varlen": torch_varlen,
    }  # fmt: skip
    for name, lengths in batches.items():
        race(name, make(lengths, machine), contenders, machine, note)


def race(
    name: str,
    work: Work,
    contenders: dict[str, Contender],
    machine: Machine,
    note: Note,
) -> None:
    """Time each contender on the batch, and compare its answer with ours."""
    expected: Tensor | None = None
    call: Callable[[], Tensor] | None
    result: Tensor | None
    for contender, prepare in contenders.items():
        row: dict[str, Any] = {"batch": name, "contender": contender}
        if machine.seconds_left < 10:
            note(row | {"failed": "no time was left"})
            continue
        try:
            call = prepare(work)
            result = call().reshape(work.q.shape)
            expected = result.clone() if expected is None else expected
            row["off"] = float((result.float() - expected.float()).abs().max())
            seconds = machine.seconds(call)
            row |= {"seconds": seconds, "B/s": work.bytes_moved / seconds, "FLOP/s": work.flops / seconds}
        except Exception as error:
            row["failed"] = (
                f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
            )
        note(row)
        call = result = None
        machine.free()
