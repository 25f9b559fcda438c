"""What the visualizer costs: opening, a step, a seek, and memory, on a long trace with many requests.

    python -m benchmarks.tui [--steps 10000] [--running 256] [--trace FILE]

The trace is of a real schedule, with scripted tokens: `--running` requests at every moment, a new one for
each that ends, chunked prefill, prefix hits, and a pool of a few thousand blocks. Times are of the whole way from
a key to the strips of a 200×60 screen, through Textual's own loop without a terminal, and in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ExecutorOutput, ScheduledStep
from tinycb.tokenizer import ByteTokenizer
from tinycb.tracing import TraceReader
from tinycb.tui.app import Visualizer
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


async def measure(path: Path) -> dict[str, float]:
    """Milliseconds of each kind of move."""
    start = time.perf_counter()
    reader = TraceReader(path)
    session = Session(reader)
    app = Visualizer(session)
    results: dict[str, float] = {}
    async with app.run_test(size=SIZE) as pilot:
        screen = app.screen
        while not isinstance(screen, MainScreen) or not screen.drawings:
            await asyncio.sleep(0.001)
            screen = app.screen
        results["open"] = 1000 * (time.perf_counter() - start)
        while not session.is_read:
            await asyncio.sleep(0.01)
        results["read the whole history, in the background"] = 1000 * (time.perf_counter() - start)
        await pilot.pause()
        results["a step forward"], results["a step forward, worst"] = await _moves(
            screen, [(+1, False)] * 40, 5000
        )
        results["a step back"], results["a step back, worst"] = await _moves(screen, [(-1, False)] * 40, 7000)
        rng = random.Random(1)
        seeks = [(rng.randrange(len(reader)), True) for _ in range(40)]
        results["a seek"], results["a seek, worst"] = await _moves(screen, seeks, 0)
    reader.close()
    return results


async def _moves(screen: MainScreen, moves: list[tuple[int, bool]], start: int) -> tuple[float, float]:
    """The median and the worst of drawing and rendering after each move."""
    session = screen.session
    session.go(start)
    screen.draw()
    await asyncio.sleep(0.05)
    times = []
    for amount, is_seek in moves:
        begin = time.perf_counter()
        session.go(amount if is_seek else session.index + amount)
        screen.draw()
        for panel in screen.panels.values():
            for y in range(panel.content_size.height):
                panel.render_line(y)
        times.append(1000 * (time.perf_counter() - begin))
        await asyncio.sleep(0)
    return statistics.median(times), max(times)


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
        for name, value in asyncio.run(measure(path)).items():
            print(f"{name:<44} {value:8.1f} ms")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{'memory, at most':<44} {peak:8.1f} MB")


if __name__ == "__main__":
    main()
