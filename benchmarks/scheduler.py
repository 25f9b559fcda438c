"""What one running request costs scheduler and engine in one step: `python -m benchmarks.scheduler`.

Every request decodes; nothing is computed, tokens are given. The time of many steps is divided by steps and
requests; of several rounds the fastest counts, because a neighbour only ever adds time. Measured with and
without a trace on disk, and with a long queue behind a full batch.

Where VLLM_PYTHON names an interpreter that has vLLM, its own scheduler is driven in the same run, in turn.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ExecutorOutput, ScheduledStep, ScriptedExecutor

RUNNING = (16, 256, 1024)
WAITING = 20_000
PROMPT = 64
BLOCK_SIZE = 16
ROW_STEPS = 120_000  # requests times steps of a round


class OneToken(ScriptedExecutor):
    """Gives every request the same token, as cheaply as that can be done."""

    def __init__(self) -> None:
        super().__init__({})

    def check_request(self, request: Request) -> None:
        """Every request is served."""

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        return ExecutorOutput(dict.fromkeys([request.request_id for request in step.sampling], 7))


def num_steps(running: int) -> int:
    return max(60, ROW_STEPS // running)


def round_of(running: int, waiting: int, trace: bool, batching: str = "chunked") -> float:
    """Microseconds a request a step."""
    steps = num_steps(running)
    blocks = running * (-(-(PROMPT + steps + 20) // BLOCK_SIZE) + 1) + 8
    config = EngineConfig(
        batching=batching,
        block_size=BLOCK_SIZE,
        num_blocks=blocks,
        max_num_batched_tokens=max(8192, running),
        max_num_seqs=running,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl" if trace else None
        engine = Engine(config, OneToken(), trace=path)
        params = SamplingParams(max_tokens=steps + 20, ignore_eos=True)
        for index in range(running + waiting):
            prompt = [(index * 7919 + position) % 50_000 for position in range(PROMPT)]
            engine.add_request(Request(f"request-{index}", prompt, params))
        while len(engine.step().sampled) < running:
            pass
        gc.collect()
        begin = time.perf_counter()
        for _ in range(steps):
            engine.step()
        spent = time.perf_counter() - begin
        engine.close()
    return 1e6 * spent / steps / running


def vllm_round(running: int) -> float | None:
    """vLLM's scheduler on the same load; None where VLLM_PYTHON is not set."""
    python = os.environ.get("VLLM_PYTHON")
    if not python:
        return None
    script = Path(__file__).with_name("scheduler_vllm.py")
    arguments = [str(n) for n in (running, num_steps(running) // 4, PROMPT, BLOCK_SIZE)]
    done = subprocess.run(
        [python, str(script), *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        print(f"vLLM's scheduler failed: {last}", file=sys.stderr)
        return None
    return float(json.loads(done.stdout.strip().splitlines()[-1])["microseconds"])


def measure(rounds: int, running: Sequence[int], waiting: int) -> None:
    """Print a line a batch size: the fastest of the rounds, and the slowest beside it."""
    kinds = (("no trace", 0, False), ("traced", 0, True), (f"{waiting:,} wait", waiting, False))
    titles = [*(name for name, *_ in kinds), "vLLM"]
    print(f"{'microseconds a request a step':<32}" + "".join(f"{title:>20}" for title in titles))
    for count in running:
        results: list[list[float]] = [[] for _ in kinds]
        peer: list[float] = []
        for _ in range(rounds):
            for values, (_, queue, trace) in zip(results, kinds, strict=True):
                values.append(round_of(count, queue, trace))
            theirs = vllm_round(count)
            peer += [theirs] if theirs is not None else []
        cells = [f"{min(v):.2f} … {max(v):.2f}" if v else "-" for v in (*results, peer)]
        print(f"{count:>6} running" + " " * 18 + "".join(f"{cell:>20}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--running", type=int, nargs="+", default=list(RUNNING), metavar="N")
    parser.add_argument("--waiting", type=int, default=WAITING, metavar="N")
    arguments = parser.parse_args()
    measure(arguments.rounds, arguments.running, arguments.waiting)


if __name__ == "__main__":
    main()
