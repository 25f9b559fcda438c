"""What the visualizer costs: opening, a step, a seek, and memory, on a long trace with many requests.

    python -m benchmarks.tui [--steps 10000] [--running 256] [--trace FILE]

The trace is of a real schedule, with scripted tokens: `--running` requests at every moment, a new one for
each that ends, chunked prefill, prefix hits, and a pool of a few thousand blocks. A move is timed from the
session to the strips of every panel of a 200×60 screen, with nothing prepared or kept; on a busy machine the
CPU's own milliseconds say more than the clock's.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ExecutorOutput, ScheduledStep
from tinycb.tokenizer import ByteTokenizer
from tinycb.tracing import TraceReader
from tinycb.tui.app import Visualizer, collect_nothing
from tinycb.tui.screen import MainScreen
from tinycb.tui.session import Session

SIZE = (200, 60)


class _Letters:
    """Any request's next token is a letter."""

    name, vocab_size, max_model_len, num_blocks = "letters", 256, None, None
    eos_token_ids: frozenset[int] = frozenset()

    def check_request(self, request: Request) -> None:
        pass

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        return ExecutorOutput(
            {r.request_id: 97 + (7 * r.num_output_tokens + len(r.request_id)) % 26 for r in step.sampling}
        )


def make_trace(path: Path, steps: int, running: int, seed: int = 0) -> None:
    """A run of so many steps in which so many requests run at every moment."""
    rng = random.Random(seed)
    config = EngineConfig(
        num_blocks=running * 20, max_num_batched_tokens=2 * running + 64, max_num_seqs=running, block_size=16
    )
    with Engine(config, _Letters(), ByteTokenizer(), trace=path) as engine:  # type: ignore[arg-type]
        number = 0
        for _ in range(steps):
            while len(engine.scheduler.running) + len(engine.scheduler.waiting) < running + 8:
                prompt = [65] * 32 + [rng.randrange(97, 123) for _ in range(rng.randrange(16, 96))]
                params = SamplingParams(max_tokens=rng.randrange(50, 250) if number > running else 1 + number)
                engine.add_request(Request(f"r{number}", prompt, params))
                number += 1
            engine.step()


Times = tuple[float, float]  # milliseconds of the clock and of the CPU


def _now() -> Times:
    return 1000 * time.perf_counter(), 1000 * time.process_time()


def _since(start: Times) -> Times:
    now = _now()
    return now[0] - start[0], now[1] - start[1]


async def measure(path: Path) -> dict[str, Times]:
    """The cost of each kind of move."""
    collect_nothing()
    start = _now()
    reader = TraceReader(path)
    session = Session(reader)
    app = Visualizer(session)
    results: dict[str, Times] = {}
    async with app.run_test(size=SIZE) as pilot:
        screen = app.screen
        while not isinstance(screen, MainScreen) or not screen.drawings:
            await asyncio.sleep(0.001)
            screen = app.screen
        results["open, to the first picture"] = _since(start)
        while not session.is_read:
            await asyncio.sleep(0.01)
        results["read all of it, in the background"] = _since(start)
        await pilot.pause()
        rng, middle = random.Random(1), len(reader) // 2
        for name, steps in (
            ("a step forward", range(middle, middle + 40)),
            ("a step back", range(middle - 100, middle - 140, -1)),
            ("a seek", [rng.randrange(len(reader)) for _ in range(60)]),
        ):
            times = await _moves(screen, steps)
            for i, what in ((len(times) // 2, "median"), (len(times) * 9 // 10, "9 of 10"), (-1, "worst")):
                results[f"{name}, {what}"] = tuple(sorted(column)[i] for column in zip(*times, strict=True))
    reader.close()
    return results


async def _moves(screen: MainScreen, steps: Iterable[int]) -> list[Times]:
    """Go to each step and draw all of it."""
    session, times = screen.session, []
    for step in steps:
        begin = _now()
        session.go(step)
        screen.draw()
        for panel in screen.panels.values():
            for y in range(panel.content_size.height):
                panel.render_line(y)
        times.append(_since(begin))
        await asyncio.sleep(0)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--trace", type=Path, help="keep the trace here, and use it if it exists")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.trace or Path(folder, "long.jsonl")
        if not path.exists():
            make_trace(path, args.steps, args.running)
        print(f"{args.steps} steps, {args.running} requests at a time, {path.stat().st_size / 1e6:.0f} MB")
        print(f"{'':<40} {'clock':>9} {'CPU':>9}   ms")
        for name, (clock, cpu) in asyncio.run(measure(path)).items():
            print(f"{name:<40} {clock:9.1f} {cpu:9.1f}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{'memory, at most':<40} {peak:9.1f} MB")


if __name__ == "__main__":
    main()
