"""`tinycb check --planted`: every planted fault, the theorem that finds it, and how soon.

Next: `tinycb/proofs/planted.py`, which has the faults, and `fault_table.py`, which tries them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinycb.commands.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from tinycb.proofs.fault_table import FaultRow

__all__ = ["run"]


def run() -> int:
    """Try each fault and print a row for it. Fails if one goes unfound."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    from rich.console import Console
    from rich.table import Table

    from tinycb.proofs.fault_table import try_fault
    from tinycb.proofs.planted import FAULTS

    warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, of NaN in interpreted kernels
    console = Console()
    rows: list[FaultRow] = []
    with Console(stderr=True).status("") as status:
        for number, name in enumerate(FAULTS, start=1):
            status.update(f"{number} of {len(FAULTS)}: {name}")
            rows.append(try_fault(name))
            if not sys.stdout.isatty():
                print(_line(rows[-1]), flush=True)
    if sys.stdout.isatty():
        table = Table("fault", "found by", "after", "smallest example", box=None, pad_edge=False)
        for row in rows:
            fault = f"{row.fault.name}\n{row.fault.module.removeprefix('tinycb_kernels.')}"
            table.add_row(fault, row.theorem.name, _after(row), row.example or row.words)
        console.print(table)
    print(_sum(rows))
    return EXIT_OK if all(row.is_found for row in rows) else EXIT_FAILED


def _after(row: FaultRow) -> str:
    return f"{row.needed} of {row.budget}" if row.is_found else f"NOT FOUND in {row.budget}"


def _line(row: FaultRow) -> str:
    return f"{row.fault.name}: {row.theorem.name}, after {_after(row)}: {row.example or row.words}"


def _sum(rows: Sequence[FaultRow]) -> str:
    found = [row for row in rows if row.needed is not None]
    worst = max(found, key=lambda row: row.needed or 0, default=None)
    missing = [row.fault.name for row in rows if row.needed is None]
    words = f"{len(found)} of {len(found) + len(missing)} faults found"
    if worst is not None:
        words += f"; the hardest, {worst.fault.name}, took {worst.needed} of {worst.budget} examples"
    return words + (f"; not found: {', '.join(missing)}" if missing else "")
