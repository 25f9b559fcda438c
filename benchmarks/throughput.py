"""Tokens a second of tinycb and its peers, serving the same work in turn: `make bench`.

Each system serves in a process of its own, one after the other, for several rounds; a row gives the median
and the ratio of tinycb's default to it, round by round. Tokens are compared with transformers' static ones.
Where VLLM_PYTHON names an interpreter that has vLLM, it is to be a system here too.

Run it on a quiet machine: a busy neighbour slows every parallel region.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import workload

DEFAULT = "tinycb chunked paged"
SYSTEMS = {
    DEFAULT: ["benchmarks.serve_tinycb"],
    "tinycb chunked varlen": ["benchmarks.serve_tinycb", "attention=varlen"],
    "tinycb chunked mask": ["benchmarks.serve_tinycb", "attention=mask"],
    "tinycb continuous paged": ["benchmarks.serve_tinycb", "batching=continuous"],
    "tinycb static paged": ["benchmarks.serve_tinycb", "batching=static"],
    "transformers static, batches of 8": ["benchmarks.serve_transformers", "static", "8"],
    "transformers continuous": ["benchmarks.serve_transformers", "continuous"],
}
REFERENCE = "transformers static, batches of 8"
ROOT = Path(__file__).parent.parent


def serve(system: str, work: Path, timeout: float) -> dict[str, Any]:
    """Run one system once, in its own process. Raises RuntimeError with its last words if it fails."""
    module, *arguments = SYSTEMS[system]
    command = [sys.executable, "-m", module, str(work), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"{system} failed: {done.stderr.strip().splitlines()[-1:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def agreement(tokens: list[list[int]], reference: list[list[int]]) -> str:
    same = sum(a == b for a, b in zip(tokens, reference, strict=True))
    return f"{same} of {len(reference)}"


def compare(num_requests: int, rounds: int, systems: list[str], timeout: float, console: Console) -> None:
    work = workload.make(num_requests)
    speeds: dict[str, list[float]] = {system: [] for system in systems}
    tokens: dict[str, list[list[int]]] = {}
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        path = Path(folder) / "work.json"
        workload.save(work, path)
        for number in range(rounds):
            for system in systems:
                status.update(f"{num_requests} requests, round {number + 1} of {rounds}: {system}")
                result = serve(system, path, timeout)
                speeds[system].append(work.output_tokens / result["seconds"])
                tokens[system] = result["tokens"]
    title = f"{num_requests} requests, {work.output_tokens} output tokens, fp32, {rounds} rounds"
    table = Table(title=title, title_justify="left")
    for heading in ("system", "tokens/s", "tinycb's default is", "same tokens"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for system in systems:
        ratios = [a / b for a, b in zip(speeds[systems[0]], speeds[system], strict=True)]
        same = agreement(tokens[system], tokens[REFERENCE]) if REFERENCE in tokens else "–"
        ratio = "–" if system == systems[0] else f"{statistics.median(ratios):.2f} ×"
        table.add_row(system, f"{statistics.median(speeds[system]):.1f}", ratio, same)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[16, 64], metavar="N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, help="these systems, beside tinycb's default")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one system to serve once")
    arguments = parser.parse_args()
    systems = [DEFAULT, *(s for s in arguments.only or SYSTEMS if s != DEFAULT)]
    for num_requests in arguments.requests:
        compare(num_requests, arguments.rounds, systems, arguments.timeout, Console())


if __name__ == "__main__":
    main()
