"""Traces that break in the middle, runs that go on, and runs that fail: said on the screen, and survived."""

import threading
from pathlib import Path

from tests.tui.harness import opened, running
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.commands.engine_thread import EngineThread
from tinycb.executors import ScriptedExecutor
from tinycb.tracing import TraceReader
from tinycb.tui.app import Visualizer
from tinycb.tui.session import Session


def test_truncated(drive, tour: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_bytes(tour.read_bytes()[:-20])

    async def play() -> None:
        async with opened(path) as d:
            assert "the trace ends in the middle of a line; its 29 whole steps are here" in d.message
            await d.press("end")
            assert d.session.index == 28
            assert "the packed row" in d.text

    drive(play())


def test_broken_in_the_middle(drive, tour: Path, tmp_path: Path) -> None:
    """What is before the broken line can be looked at."""
    lines = tour.read_bytes().splitlines(keepends=True)
    lines[13] = lines[13][:50] + b"oops" + lines[13][54:]
    path = tmp_path / "broken.jsonl"
    path.write_bytes(b"".join(lines))

    async def play() -> None:
        async with opened(path) as d:
            assert "line 14" in d.message
            await d.press("end")
            assert d.session.index == 11
            assert "step 11 of 11" in d.text
            await d.type(":20")
            await d.press("enter")
            assert "there is no step 20: they go from 0 to 11" in d.message

    drive(play())


def make_engine(path: Path, executor: ScriptedExecutor) -> Engine:
    config = EngineConfig(block_size=4, num_blocks=32, max_num_batched_tokens=8, max_num_seqs=4)
    engine = Engine(config, executor, trace=path)
    for name in "ABC":
        engine.add_request(Request(name, [1, 2, 3, 4, 5], SamplingParams(max_tokens=40, ignore_eos=True)))
    return engine


SCRIPTS = {name: list(range(40)) for name in "ABC"}


class Gate(ScriptedExecutor):
    """Runs a step when it is let; fails in step `fail_at`."""

    def __init__(self, fail_at: int = -1) -> None:
        super().__init__(SCRIPTS)
        self.allowed = threading.Semaphore(0)
        self.fail_at = fail_at
        self.count = 0

    def execute(self, step):
        self.allowed.acquire()
        self.count += 1
        if self.count == self.fail_at:
            raise RuntimeError("the device went away")
        return super().execute(step)


def test_live(drive, tmp_path: Path) -> None:
    path, gate = tmp_path / "live", Gate()
    thread = EngineThread(make_engine(path, gate))
    gate.allowed.release()
    thread.run_first_step()

    async def play(reader: TraceReader) -> None:
        async with running(Visualizer(Session(reader, thread))) as d:

            async def until(what) -> None:
                for _ in range(200):
                    await d.pilot.pause(0.02)
                    if what():
                        return
                raise AssertionError(f"step {d.session.index} of {d.session.num_steps}: {d.message}")

            session = d.session
            assert "● live" in d.text
            gate.allowed.release(4)
            await until(lambda: session.index == 4)  # it follows
            await d.press("h", "h")
            assert session.index == 2
            gate.allowed.release(3)
            await until(lambda: session.num_steps == 8)  # the engine goes on, the view stays
            assert session.index == 2
            await d.settle()
            assert "5 behind" in d.text
            await d.press("end")
            gate.allowed.release(1)
            await until(lambda: session.index == 8)
            await d.press("space")
            assert thread.is_paused
            gate.allowed.release(20)
            await until(lambda: "paused" in d.text and session.num_steps == 10)  # one was under way
            stopped = session.num_steps
            await d.press("end")
            for _ in range(3):
                before = session.num_steps
                await d.press("l")  # one step of the engine
                await until(lambda n=before: session.index >= n)
            assert session.num_steps == stopped + 3
            assert thread.is_paused
            await d.press("b")
            await d.type("step==20")
            await d.press("enter", "space")
            await until(lambda: session.index == 20 and thread.is_paused)
            await d.press("space", "end")
            gate.allowed.release(50)
            await until(lambda: thread.is_over)
            await until(lambda: session.num_steps == len(reader) and session.index == len(reader) - 1)
            assert thread.error is None

    with TraceReader(path) as reader:
        drive(play(reader))
    gate.allowed.release(99)
    thread.stop()


def test_a_model_that_fails_while_live(drive, tmp_path: Path) -> None:
    path, gate = tmp_path / "live", Gate(fail_at=6)
    thread = EngineThread(make_engine(path, gate))
    gate.allowed.release(9)
    thread.run_first_step()

    async def play(reader: TraceReader) -> None:
        async with running(Visualizer(Session(reader, thread))) as d:
            for _ in range(200):
                await d.pilot.pause(0.02)
                if thread.is_over and d.session.num_steps == 6:
                    break
            await d.pilot.pause(0.2)
            await d.settle()
            assert "the run ended: step 5 failed: RuntimeError: the device went away" in d.message
            await d.press("end")
            assert "the forward failed" in d.text
            await d.press("h", "h")
            assert d.session.index == 3
            assert "query_start_loc" in d.text

    with TraceReader(path) as reader:
        drive(play(reader))
    thread.stop()


def test_stopping_waits_for_the_step(tmp_path: Path) -> None:
    gate = Gate()
    thread = EngineThread(make_engine(tmp_path / "t", gate))
    gate.allowed.release(1)
    thread.run_first_step()
    threading.Timer(0.1, gate.allowed.release).start()
    thread.stop()
    with TraceReader(tmp_path / "t") as reader:
        assert len(reader) in (1, 2)
        assert not reader.truncated
