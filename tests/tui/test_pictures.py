"""The screen's text at three sizes, against stored files.

TINYCB_WRITE_SCREENS=1 writes them anew; look at the difference before it is committed.
"""

import os
from pathlib import Path

import pytest

from tests.tui.harness import opened, running
from tinycb.tracing import TraceReader
from tinycb.tui.compare import CompareApp
from tinycb.tui.selection import Selection
from tinycb.tui.session import Session

SCREENS = Path(__file__).with_name("screens")
SIZES = [(80, 24), (120, 40), (200, 60)]


def check(name: str, text: str) -> None:
    path = SCREENS / f"{name}.txt"
    if os.environ.get("TINYCB_WRITE_SCREENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} is not what is on the screen"


@pytest.mark.parametrize("size", SIZES)
def test_a_step_of_the_tour(drive, tour: Path, size: tuple[int, int]) -> None:
    async def play() -> None:
        async with opened(tour, size) as d:
            d.session.go(11)
            d.session.selection = Selection("D", 13)
            await d.press("5")
            check("step11-{}x{}".format(*size), without_lines(d.text))
            d.session.go(15)
            d.session.selection = Selection("D")
            await d.press("1")
            check("step15-{}x{}".format(*size), without_lines(d.text))

    drive(play())


def test_two_runs(drive, tours: dict[str, Path]) -> None:
    async def play() -> None:
        with TraceReader(tours["static"]) as static, TraceReader(tours["chunked"]) as chunked:
            app = CompareApp([Session(static), Session(chunked)], ["static", "chunked"])
            async with running(app, (160, 50)) as d:
                await d.press("L", "l")
                check("compare-160x50", d.text)

    drive(play())


def without_lines(text: str) -> str:
    """Without the line numbers of the sources, which move with the code."""
    import re

    return re.sub(r"\.py:\d+", lambda match: ".py:" + "#" * (len(match[0]) - 4), text)
