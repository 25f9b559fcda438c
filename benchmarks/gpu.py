"""What the GPU side is worth, in one go of under eight minutes, and docs/gpu.md from it.

    python benchmarks/gpu.py --json OUT/gpu.json             # on the machine with the GPU: measure
    python benchmarks/gpu.py --write --from OUT/gpu.json     # anywhere: docs/gpu.md from what was measured
    python benchmarks/gpu.py --write                         # both; only the page where there is no GPU

Parts run one after the other, each in a process of its own: one that fails, hangs or takes the GPU down is
reported, and the others go on. What a part has noted is kept line by line. It needs torch, triton, numba,
transformers and this repository, and no network.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATHS = (str(ROOT), str(ROOT / "kernels"))
HERE = str(ROOT / "benchmarks")  # where Python looks first when this is run as a file: not for `profile`
sys.path[:] = [*PATHS, *(path for path in sys.path if path not in (*PATHS, HERE))]
PAGE = ROOT / "docs" / "gpu.md"

# name → module, function, seconds it may take, in the order in which they run.
PARTS = {
    "ceilings": ("benchmarks.gpu_machine", "ceilings", 20),
    "grids": ("benchmarks.gpu_correct", "grids", 120),
    "decode": ("benchmarks.gpu_attention", "decode", 100),
    "prompts": ("benchmarks.gpu_attention", "prompts", 70),
    "engine": ("benchmarks.gpu_engine", "serve", 95),
}
Rows = list[dict[str, Any]]


def run_part(name: str, notes: Path, is_dry: bool) -> None:
    """One part, here. Each row it notes is printed, and appended to `notes` as a line of JSON."""
    from benchmarks.gpu_machine import Machine

    module, function, box = PARTS[name]
    part: Callable[..., None] = getattr(importlib.import_module(module), function)
    machine = Machine.dry(box) if is_dry else Machine.gpu(box)
    with notes.open("a") as file:

        def note(row: dict[str, Any]) -> None:
            print(f"{name:8}", *(f"{key}={short(value)}" for key, value in row.items()), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()

        part(machine, note)


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run_apart(command: Sequence[str], seconds: float) -> str:
    """Run a command in a process group of its own; "ok", or how it ended."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        code = process.wait(seconds)
        return "ok" if code == 0 else f"it failed with exit code {code}"
    except subprocess.TimeoutExpired:
        return f"it was ended after {seconds:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever it started, too
        process.wait()


def measure(parts: Sequence[str], seconds: float, is_dry: bool, folder: Path) -> dict[str, Any]:
    """All parts, each within its box and all within `seconds`."""
    started, results = time.monotonic(), {}
    for name in parts:
        notes = folder / f"{name}.jsonl"
        notes.unlink(missing_ok=True)
        left = min(PARTS[name][2] + 15, seconds - (time.monotonic() - started))
        flags = ["--dry-run"] if is_dry else []
        command = [sys.executable, "-m", "benchmarks.gpu", "--part", name, str(notes), *flags]
        begin = time.monotonic()
        outcome = run_apart(command, left) if left > 5 else "no time was left"
        rows = list(read_rows(notes))
        taken = time.monotonic() - begin
        print(f"{name}: {outcome}, {len(rows)} rows, {taken:.0f} s", flush=True)
        results[name] = {"outcome": outcome, "seconds": taken, "rows": rows}
    return {"machine": machine_facts(is_dry), "parts": results}


def read_rows(notes: Path) -> Iterator[dict[str, Any]]:
    if notes.exists():
        yield from (json.loads(line) for line in notes.read_text().splitlines() if line.endswith("}"))


def machine_facts(is_dry: bool) -> dict[str, str]:
    names = ("torch", "triton", "numpy")
    facts = {name: importlib.metadata.version(name) for name in names} | {"python": platform.python_version()}
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        gpu = ""
    return {"gpu": "none: a dry run, whose numbers mean nothing" if is_dry else gpu, **facts}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog="Parts: " + ", ".join(f"{name} (up to {box} s)" for name, (*_, box) in PARTS.items()) + ".",
    )
    parser.add_argument("--json", type=Path, default=Path("gpu-results/gpu.json"), help="where results go")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--seconds", type=float, default=460, help="for all parts together")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU, Triton interpreted")
    parser.add_argument("--write", action="store_true", help="write docs/gpu.md")
    parser.add_argument("--from", dest="earlier", type=Path, help="measure nothing, take these results")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)  # what it calls itself with
    options = parser.parse_args(arguments)
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    if options.part:
        run_part(options.part[0], Path(options.part[1]), options.dry_run)
        return 0
    import torch

    results: dict[str, Any] = {"parts": {}}
    if options.earlier:
        if not options.earlier.is_file():
            parser.error(f"--from: {options.earlier} is no file; it takes what --json has written")
        results = json.loads(options.earlier.read_text())
    elif options.dry_run or torch.cuda.is_available():
        folder = options.json.resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        results = measure(options.only, options.seconds, options.dry_run, folder)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
        print(f"wrote {options.json}", flush=True)
    elif not options.write:
        parser.error(
            "torch sees no GPU: --dry-run is for the CPU, --write writes docs/gpu.md without numbers"
        )
    if options.write and not options.dry_run:
        from benchmarks.gpu_page import write

        write(PAGE, results if results["parts"] else None)
    return 0 if all(part["outcome"] == "ok" for part in results["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
