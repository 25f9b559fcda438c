"""Nothing that a key makes refers to itself, so that the program can do without the garbage collector."""

import gc
from pathlib import Path

from tests.tui.harness import opened
from tinycb.tracing import TraceReader


def test_a_drawing_leaves_no_garbage(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (200, 60)) as d:
            await d.press("l", "j", "z", "z")
            gc.collect()
            await d.press(*"lllllhhjk")
            assert gc.collect() <= 20
            await d.press("2", "enter", "right", "escape", "n", "N", "m", "a", "z")
            assert gc.collect() <= 400  # a new focus makes Textual's own lines anew; a drawing has thousands

    gc.disable()
    try:
        drive(play())
    finally:
        gc.enable()


def test_a_record_and_its_rows_leave_no_garbage(tour: Path) -> None:
    with TraceReader(tour) as reader:
        gc.collect()
        gc.disable()
        try:
            for index in range(len(reader)):
                assert reader[index].rows is not None
                assert reader.state(index).blocks
            assert gc.collect() == 0
        finally:
            gc.enable()
