"""Which theorem finds which planted fault, after how many examples, and the smallest one it finds.

    for row in fault_table():
        print(row.fault.name, row.theorem.name, row.needed, row.example)

A fault that may end the process (an address computed in 32 bits is anywhere) is tried in a process of its
own, and that it died is an answer too. `tinycb check --planted` prints the table.

Next: `planted.py`, which has the faults.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinycb.proofs.planted import FAULTS, Fault, planted
from tinycb.proofs.registry import find_theorem
from tinycb.proofs.theorem import Scope, Theorem

__all__ = ["FaultRow", "fault_table", "scope_of", "subject_of", "theorem_of", "try_fault"]

MAY_CRASH = ("block_offsets_in_32_bit",)


@dataclass(frozen=True, slots=True)
class FaultRow:
    """What came of one fault. needed: examples until one failed, None if none did, of `budget` allowed.

    example: the smallest one found. words: what it shows. seconds: with shrinking and compiling.
    """

    fault: Fault
    theorem: Theorem
    budget: int
    needed: int | None
    example: str
    words: str
    seconds: float

    @property
    def is_found(self) -> bool:
        return self.needed is not None


def subject_of(fault: Fault) -> Any:
    """What the fault's theorem is asked about: the shipped code, by the backend that the fault is in."""
    if fault.about in ("scheduler", "chunked"):
        return "chunked"
    if fault.about == "engine":
        from tinycb.proofs.engine_theorems import tiny_engine

        return tiny_engine
    import tinycb_kernels

    if fault.about == "causal_mask":
        return tinycb_kernels.causal_mask
    names = {"varlen": "varlen_attention", "paged": "paged_attention", "write_kv": "write_kv"}
    return partial(getattr(tinycb_kernels, names[fault.about]), backend=fault.backend)


def theorem_of(fault: Fault) -> Theorem:
    return find_theorem(fault.about, fault.theorem)


def scope_of(fault: Fault) -> Scope:
    """Where to look: examples that suit what the backend costs. Triton is tried on a GPU if there is one."""
    if fault.backend != "triton":
        return Scope()
    import torch

    return Scope(cost=1, device="cuda" if torch.cuda.is_available() else "cpu")


def try_fault(name: str, *, shrink: bool = True) -> FaultRow:
    """Plant the fault and search for a counterexample, always through the same examples.

    shrink: False is content with the first one.
    """
    fault = FAULTS[name]
    if name in MAY_CRASH and os.environ.get("TINYCB_FAULT") != name:
        return _try_elsewhere(fault)
    theorem = theorem_of(fault)
    with planted(name):
        verdict = theorem.verdict(subject_of(fault), scope_of(fault), shrink=shrink)
    return FaultRow(
        fault,
        theorem,
        theorem.budget,
        verdict.needed,
        "" if verdict.needed is None else str(verdict.example),
        str(verdict.failure or verdict.untried),
        verdict.seconds,
    )


def fault_table(names: Iterable[str] = FAULTS) -> Iterator[FaultRow]:
    """A row for each fault, as they are tried, with the smallest example found."""
    return map(try_fault, names)


def _try_elsewhere(fault: Fault) -> FaultRow:
    """The same in a process of its own, whose death counts as found with the first example."""
    command = [sys.executable, "-m", "tinycb.proofs.fault_table", fault.name]
    done = subprocess.run(
        command, env={**os.environ, "TINYCB_FAULT": fault.name}, capture_output=True, text=True
    )
    theorem = theorem_of(fault)
    if done.returncode < 0:
        words = f"the process died of {signal.Signals(-done.returncode).name}"
        return FaultRow(fault, theorem, theorem.budget, 1, "the first", words, 0.0)
    if done.returncode:
        raise RuntimeError(f"trying {fault.name} in a process of its own failed: {done.stderr[-2000:]}")
    values = json.loads(done.stdout)
    return FaultRow(fault, theorem, theorem.budget, *values)


if __name__ == "__main__":
    row = try_fault(sys.argv[1])
    print(json.dumps([row.needed, row.example, row.words, row.seconds]))
