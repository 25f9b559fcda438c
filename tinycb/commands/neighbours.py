"""Other processes that keep the processors busy, found in Linux's /proc; elsewhere nobody is found.

They matter beyond their share of the time: the threads of a parallel loop wait for one another by spinning,
and where one of them has lost its processor to a neighbour, a loop can take a hundred times as long.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Neighbour", "busy_neighbours"]

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """share: of one processor, 1.0 is all of it."""

    pid: int
    command: str
    share: float


def busy_neighbours(seconds: float = 0.4, least: float = 0.2) -> list[Neighbour]:
    """Processes, this one and its parents apart, that used at least `least` of a processor; busiest first."""
    if not (_PROC / "self/stat").is_file():
        return []
    before, start = _ticks(), time.monotonic()
    time.sleep(seconds)
    spent = time.monotonic() - start
    rate = os.sysconf("SC_CLK_TCK") * spent
    shares = {pid: (ticks - before.get(pid, ticks)) / rate for pid, ticks in _ticks().items()}
    busy = [(share, pid) for pid, share in shares.items() if share >= least and pid != os.getpid()]
    return [Neighbour(pid, _command(pid), share) for share, pid in sorted(busy, reverse=True)]


def _ticks() -> dict[int, int]:
    """Clock ticks each process has spent, in itself and in the kernel."""
    ticks = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                # The command, in parentheses, may hold spaces and parentheses itself.
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                ticks[int(folder.name)] = int(fields[11]) + int(fields[12])
            except (OSError, IndexError, ValueError):
                continue  # it has ended meanwhile
    return ticks


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return words.strip() or (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "(ended)"
