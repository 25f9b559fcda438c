"""Two runs with one cursor."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.tui.harness import running, whole
from tinycb.tracing import MetricsCollector, TraceReader, config_from_header
from tinycb.tui.compare import CompareApp, CompareScreen
from tinycb.tui.session import Session
from tinycb.tui.tally import Tally


@asynccontextmanager
async def compared(left: Path, right: Path, size: tuple[int, int] = (160, 50)):
    with TraceReader(left) as a, TraceReader(right) as b:
        app = CompareApp([Session(a), Session(b)], [left.name, right.name])
        async with running(app, size) as driver:
            yield driver


def test_one_cursor(drive, tours: dict[str, Path]) -> None:
    async def play() -> None:
        async with compared(tours["static"], tours["chunked"]) as d:
            screen = d.screen
            assert isinstance(screen, CompareScreen)
            left, right = screen.sides
            for key, index in (("L", 10), ("L", 20), ("L", 30), ("h", 29)):
                await d.press(key)
                assert (left.index, right.index) == (index, min(index, 29))
            await d.press("end")
            assert (left.index, right.index) == (53, 29)
            assert "step 29 (over)" in d.text
            await d.type(":12")
            await d.press("enter", "j")
            assert left.selection == right.selection
            await d.press("e", "n")
            assert (left.index, right.index) == (12, 12)  # static preempts nobody
            await d.press("t")
            for index in (12, 20, 40):
                await d.type(f":{index}")
                await d.press("enter")
                times = [session.history.times for session in (left, right)]
                at = times[0][left.index] - times[0][0]
                assert times[1][right.index] - times[1][0] <= at + 1e-6
                if right.index < 29:
                    assert times[1][right.index + 1] - times[1][0] > at
            assert "by time" in d.text.splitlines()[0]

    drive(play())


def test_first_difference(drive, tours: dict[str, Path]) -> None:
    async def play() -> None:
        async with compared(tours["continuous"], tours["chunked"]) as d:
            await d.press("end", "d")
            screen = d.screen
            assert isinstance(screen, CompareScreen)
            records = zip(*(session.source for session in screen.sides), strict=False)
            first = next(i for i, (a, b) in enumerate(records) if a.scheduled != b.scheduled)
            assert d.session.index == first
            assert "the runs first differ here, in scheduled" in d.message

    drive(play())


def test_small(drive, tours: dict[str, Path]) -> None:
    async def play() -> None:
        async with compared(tours["static"], tours["chunked"], (80, 24)) as d:
            assert "steps" in d.text
            for number in range(1, 8):
                await d.press(str(number))
                assert d.screen.front == list(d.screen.panels)[number - 1]
            await d.press("question_mark", "escape", "tab", "l")
            await d.pilot.resize_terminal(40, 10)
            await d.settle()
            assert "This terminal is 40" in d.text

    drive(play())


@pytest.mark.parametrize("pair", [("static", "chunked"), ("chunked", "chunked")])
def test_totals(tours: dict[str, Path], pair: tuple[str, str]) -> None:
    with TraceReader(tours[pair[0]]) as a, TraceReader(tours[pair[1]]) as b:
        tally = Tally([a, b])
        while not tally.is_done:
            tally.work()
        for reader, totals in zip((a, b), tally.totals, strict=True):
            collector = MetricsCollector(config_from_header(reader.header))
            for record in reader:
                collector.observe(record)
            assert totals == collector.totals
        assert tally.verdict() == "the same tokens for all 5 requests"
        assert (tally.first_difference is None) == (pair[0] == pair[1])


def test_a_click_on_the_shorter_run_moves_both(drive, tours: dict[str, Path]) -> None:
    async def play() -> None:
        async with compared(tours["static"], tours["chunked"]) as d:
            screen = d.screen
            assert isinstance(screen, CompareScreen)
            panel = screen.pair[1]["timeline"]
            drawing = panel.drawing
            x = drawing.label + 7 * drawing.cell
            await d.pilot.click(panel, offset=(x + 1, 3))
            await d.settle()
            assert [session.index for session in screen.sides] == [7, 7]
            assert d.session.selection.request_id == "B"

    drive(play())


def test_sessions_are_read_to_the_end(tours: dict[str, Path]) -> None:
    with TraceReader(tours["static"]) as reader:
        assert whole(Session(reader)).history.num_steps == 54
