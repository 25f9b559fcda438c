"""What this machine will use: device, backend, threads, model cache; and what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinycb import __version__
from tinycb.commands.errors import EXIT_FAILED, EXIT_OK, one_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["EXAMPLES", "Finding", "add_arguments", "run"]

EXAMPLES = """\
exit code: 0 if all that is needed is there, 1 if something is missing; the line then has the command for it
"""

NEEDED = ("torch", "numpy", "transformers", "safetensors", "tokenizers", "platformdirs", "rich")
FOR_GGUF = ("gguf", "accelerate")
FOR_SPEED = ("numba", "triton")
MARKS = {"ok": "ok", "note": "note", "missing": "MISSING"}
STYLES = {"ok": "green", "note": "yellow", "missing": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. state: "ok", "note" or "missing"."""

    subject: str
    text: str
    state: str = "ok"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag."""
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure what this machine moves and computes a second, for tinycb budget, simulate and bench",
    )


def run(args: argparse.Namespace) -> int:
    """Print the report as it is found out, or measure."""
    if args.measure:
        return _measure()
    from tinycb.commands.terminal import console

    out = console(sys.stdout)
    missing = False
    for finding in findings():
        missing = missing or finding.state == "missing"
        _print(out, finding)
    out.print()
    out.print("Something needed is missing." if missing else "All that is needed is here.")
    return EXIT_FAILED if missing else EXIT_OK


def _measure() -> int:
    """The figures of this machine, printed and kept."""
    from tinycb.commands.terminal import progress
    from tinycb.costs.devices import save_measured
    from tinycb.costs.measure import copy_bandwidth, measure_this_machine

    with progress("measuring this machine") as tell:
        device = measure_this_machine(tell)
    figures = (
        ("copy", f"{copy_bandwidth() / 1e9:.1f} GB/s read and written, for comparison"),
        ("weights", f"{device.bandwidth / 1e9:.1f} GB/s read by products of few rows"),
        ("products", f"{device.flops['float32'] / 1e9:.0f} GFLOPS in float32 at many rows"),
        ("attention", f"{device.attention_flops['float32'] / 1e9:.0f} GFLOPS in float32"),
        ("layer", f"{device.layer_overhead * 1e3:.2f} ms beside its bytes and operations"),
    )
    for name, text in figures:
        print(f"{name:<12}{text}")
    for neighbour in _neighbours():
        print(f"{neighbour.subject or 'advice':<12}{neighbour.text}")
    try:
        print(f"kept in {save_measured(device)}: device cpu of tinycb budget, simulate and bench")
    except OSError as error:
        print(f"tinycb doctor: cannot keep the figures: {one_line(error)}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def findings() -> Iterator[Finding]:
    """Everything worth knowing, one by one. A check that fails is a finding too."""
    yield Finding("tinycb", f"{__version__} on Python {platform.python_version()}, {platform.system()}")
    yield from _packages()
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (_device, _threads, _memory, _model, _neighbours)
    for check in checks:
        try:
            yield from check()
        except Exception as error:
            name = check.__name__.strip("_")
            yield Finding(name, f"cannot be told: {type(error).__name__}: {one_line(error)}", "note")
    yield _terminal()


def _print(out: Console, finding: Finding) -> None:
    """On a terminal, wrapped below its own column; elsewhere one finding is one line."""
    from rich.table import Table
    from rich.text import Text

    mark = Text(MARKS[finding.state], style=STYLES[finding.state])
    subject = Text(finding.subject, style="bold")
    if out.is_terminal:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=8)
        grid.add_column(width=12)
        grid.add_row(mark, subject, Text(finding.text))
        out.print(grid)
    else:
        out.print(f"{mark.plain:<9}{subject.plain:<13}{finding.text}", soft_wrap=True, markup=False)


def _packages() -> Iterator[Finding]:
    found, absent = [], []
    for name in (*NEEDED, *FOR_GGUF, *FOR_SPEED):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    yield Finding("packages", ", ".join(found))
    for name in absent:
        if name in NEEDED:
            yield Finding(name, f"is needed: pip install {name}", "missing")
        elif name in FOR_GGUF:
            yield Finding(name, f"is needed to read a .gguf file: pip install {name}", "missing")
        else:
            yield Finding(name, f"is not here, and --backend {name} with it: pip install {name}", "note")


def _device() -> Iterator[Finding]:
    import torch

    from tinycb.model.linear import can_pack
    from tinycb_kernels.backends import choose_backend

    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if has_gpu else "cpu")
    what = torch.cuda.get_device_name(0) if has_gpu else "torch sees no GPU"
    yield Finding("device", f"{device.type} ({what})")
    backend = choose_backend("auto", device)
    why = {
        "triton": "compiled for the GPU",
        "numba": "parallel loops compiled for the CPU; compiled once, then kept",
        "torch": "plain torch, because numba is not installed",
    }[backend]
    yield Finding("backend", f"{backend} ({why})", "note" if backend == "torch" else "ok")
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not has_gpu or interpreted:
        state = "set" if interpreted else "not set, tinycb run --backend triton sets it"
        yield Finding("triton", f"interpreted on the CPU, for looking inside (TRITON_INTERPRET is {state})")
    if not has_gpu:
        packed = can_pack(device, torch.float32)
        text = (
            "weights are laid out once for the CPU"
            if packed
            else "torch's own, because Numba is not installed"
        )
        yield Finding("products", text, "ok" if packed else "note")


def _threads() -> Iterator[Finding]:
    import torch

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = [f"{torch.get_num_threads()} for {usable} usable processors"]
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NUMBA_NUM_THREADS")
    parts += [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]
    too_many = torch.get_num_threads() > usable
    yield Finding("threads", ", ".join(parts), "note" if too_many else "ok")


def _memory() -> Iterator[Finding]:
    import torch

    from tinycb.config import EngineConfig, parse_bytes
    from tinycb.model.kv_cache import available_memory

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    free, cache = available_memory(device), parse_bytes(EngineConfig().kv_cache_memory)
    text = (
        f"{_size(free)} available; the KV cache takes {_size(cache)} unless --kv-cache-memory says otherwise"
    )
    yield Finding("memory", text, "ok" if free > 2 * cache else "note")


def _model() -> Iterator[Finding]:
    from tinycb.model import checkpoint, gguf_cache

    root = gguf_cache.cache_root()
    try:
        gguf = checkpoint.smollm2_file()
    except ValueError as error:
        yield Finding("model", one_line(error), "missing")
        yield Finding("model cache", str(root))
        return
    folder = root / f"{gguf.stem}-v{gguf_cache.FORMAT_VERSION}-{gguf_cache.fingerprint(gguf)[:16]}"
    if gguf_cache.is_whole(folder):
        yield Finding("model", f"smollm2-135m is installed and converted, in {folder}")
        return
    yield Finding("model", "smollm2-135m is installed; the first run converts it, about 15 s")
    existing = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK):
        yield Finding("model cache", f"{root} cannot be written; set TINYCB_CACHE to a folder", "missing")
    elif free < 2**30:
        yield Finding("model cache", f"{root} has {_size(free)} left, and the model takes 540 MB", "note")
    else:
        yield Finding("model cache", f"{root}, {_size(free)} left")


def _neighbours() -> Iterator[Finding]:
    from tinycb.commands.neighbours import busy_neighbours

    busy = busy_neighbours()
    for neighbour in busy[:5]:
        what = f"process {neighbour.pid} keeps {neighbour.share:.1f} processors busy: {neighbour.command:.60}"
        yield Finding("neighbour", what, "note")
    if busy and os.environ.get("OMP_WAIT_POLICY", "").lower() != "passive":
        advice = (
            "a busy neighbour can slow every step many times; OMP_WAIT_POLICY=passive before tinycb helps"
        )
        yield Finding("", advice, "note")
    elif not busy:
        yield Finding("neighbours", "no other process is busy")


def _terminal() -> Finding:
    from tinycb.commands.terminal import is_interactive

    size = shutil.get_terminal_size()
    if is_interactive(sys.stdout):
        small = size.columns < 80 or size.lines < 24
        text = f"{size.columns}×{size.lines}, with colours" + (": 80×24 is better" if small else "")
        return Finding("terminal", text, "note" if small else "ok")
    reasons = [] if sys.stdout.isatty() else ["stdout is no terminal"]
    reasons += ["NO_COLOR is set"] if os.environ.get("NO_COLOR") else []
    reasons += ["TERM is dumb"] if os.environ.get("TERM") == "dumb" else []
    return Finding("terminal", f"plain lines ({', '.join(reasons)})")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
