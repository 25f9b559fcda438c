"""The correctness grids of the kernels, compiled: every case against float64, with NaN in memory of nobody.

The batches and the oracle are those of `tests/kernels/batches.py`. A case also asks that each request has the
same bits alone as in its batch, and that cache writes are exact. Several processes share the GPU, because
nearly all of the time goes into compiling on the CPU.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks.gpu_machine import Machine

PROCESSES = 10
HEADS = ((8, 2), (4, 4), (5, 1), (6, 2))
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MIXED = ((1, 1328), (5, 18), (129, 463), (0, 7), (3, 2))
DECODES = ((1, 523), (1, 37), (1, 2011), (1, 1), (2, 0), (1, 512), (1, 1024))
LONG = ((40, 4500), (1, 65), (1, 97), (8, 24), (20, 52))


@dataclass(frozen=True)
class Case:
    """Requests of these (q_len, seq_len), in blocks of this size."""

    dtype: str
    head_dim: int
    block_size: int
    heads: tuple[int, int]
    lengths: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        heads = f"{self.heads[0]}/{self.heads[1]} heads"
        rows = " ".join(f"{q}:{s}" for q, s in self.lengths)
        return f"{self.dtype} D {self.head_dim} {heads} BS {self.block_size} [{rows}]"


def cases(is_dry: bool) -> list[Case]:
    """Dtypes, head dims and block sizes, each with lengths that have broken kernels and with random ones."""
    if is_dry:
        return [Case("fp32", 16, 4, (3, 1), ((1, 40), (2, 3))), Case("bf16", 16, 16, (2, 2), ((3, 3),))]
    random.seed(0)
    heads = itertools.cycle(HEADS)
    grid = []
    for dtype, dim, block_size in itertools.product(DTYPES, (64, 128), (1, 16, 256)):
        chosen = next(heads)
        ragged = tuple((random.choice((1, 1, 3, 70)), random.randint(70, 900)) for _ in range(12))
        grid += [Case(dtype, dim, block_size, chosen, rows) for rows in (MIXED, DECODES, LONG, ragged)]
    grid += [
        Case("bf16", 128, size, (8, 2), rows) for size in (2, 8, 32, 64, 128) for rows in (MIXED, DECODES)
    ]
    return grid


def check(case: Case, device: str) -> list[str]:
    """What is wrong: one line a path, none if all is right."""
    from tinycb_kernels import write_kv

    tests = importlib.import_module("tests.kernels.batches")
    backend = tests.Backend("triton", torch.device(device), device == "cpu")
    shape = (case.heads, case.head_dim, case.block_size, DTYPES[case.dtype])
    batch = tests.make_batch(list(case.lengths), *shape)
    reference = tests.oracle(batch)
    wrong = []
    results = {}
    for path in ("paged", "varlen"):
        try:
            results[path] = batch.attend(path, backend)
            tests.assert_right(results[path], batch, reference)
        except (AssertionError, RuntimeError, ValueError) as error:
            wrong.append(f"{path}: {error}")
    for r, (rows, _) in enumerate(tests.requests(batch)):
        if "paged" in results and len(range(*rows.indices(len(batch.q)))):
            alone = batch.only([r]).attend("paged", backend)
            if not torch.equal(alone, results["paged"][rows]):
                wrong.append(f"paged: request {r} has other bits alone than in the batch")
    there = batch.to(backend.device)
    cache = torch.full_like(there.k_cache, torch.nan)
    slots = torch.randperm(cache.shape[0] * case.block_size)[: len(batch.k)].to(backend.device)
    write_kv(there.k, there.v, cache, cache.clone(), slots, backend="triton")
    if not torch.equal(cache.flatten(0, 1)[slots], there.k):
        wrong.append("write_kv: a slot does not hold its key")
    return wrong


def grids(machine: Machine, note: Callable[[dict[str, Any]], None]) -> None:
    """Check every case; note each."""
    for case, wrong in outcomes(cases(machine.is_dry), machine):
        note({"case": str(case), "wrong": wrong})


def outcomes(chosen: list[Case], machine: Machine) -> Iterator[tuple[Case, list[str]]]:
    if machine.is_dry:
        yield from ((case, check(case, machine.device.type)) for case in chosen)
        return
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(check, case, "cuda"): case for case in chosen}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except Exception as error:  # a process that died takes its cases along, not the rest
                yield futures[future], [f"{type(error).__name__}: {error}"]
