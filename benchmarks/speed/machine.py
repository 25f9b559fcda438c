"""The machine's name, for a page that quotes seconds: processor, cores, memory."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["machine_name"]

_EXTENSIONS = ("amx_tile", "avx512_bf16", "avx512f", "avx2", "asimd")  # the first that is there says most


def machine_name() -> str:
    """In one line, such as `AMD EPYC (family 25, model 17, avx512_bf16), 2 cores, 23 GiB`."""
    facts = _cpuinfo()
    name = facts.get("model name") or platform.processor() or platform.machine()
    details = [f"{key.removeprefix('cpu ')} {facts[key]}" for key in ("cpu family", "model") if key in facts]
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    details += [next(iter(e for e in _EXTENSIONS if e in flags), "")]
    told = ", ".join(filter(None, details))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{name}{f' ({told})' if told else ''}, {cores} cores, {memory:.0f} GiB"


def _cpuinfo() -> dict[str, str]:
    """Linux's facts about the first processor; nothing elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
