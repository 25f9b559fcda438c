"""Any size of terminal, and no colours."""

from pathlib import Path

import pytest

from tests.tui.harness import NAMES, opened


def test_resize(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (200, 60)) as d:
            await d.press("2")
            modes = {(120, 40): "all", (80, 24): "tabs", (50, 12): "small"}
            for size, mode in (*modes.items(), ((80, 24), "tabs"), ((200, 60), "all")):
                await d.pilot.resize_terminal(*size)
                await d.press("l")
                assert d.screen.mode == mode
                if mode == "small":
                    assert "This terminal is 50 × 12" in d.text
                else:
                    assert f"step {d.session.index} of 29" in d.text
                    assert "query_start_loc" in d.text

    drive(play())


def test_tabs(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (80, 24)) as d:
            for number, name in enumerate(NAMES, start=1):
                await d.press(str(number))
                assert d.screen.front == name
                assert d.screen.panels[name].display
                title = d.screen.panels[name].drawing.title
                assert title in d.text
            await d.press("tab")
            assert d.screen.front == "timeline"
            await d.press("shift+tab")
            assert d.screen.front == "place"
            await d.pilot.click("#tabs", offset=(24, 0))
            await d.settle()
            assert d.screen.front == "why"

    drive(play())


def test_no_colour(drive, tour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def play() -> None:
        async with opened(tour) as d:
            await d.press("l", "l")
            assert d.screen.look.mode == "plain"
            for panel in d.screen.panels.values():
                for y in range(panel.content_size.height):
                    for segment in panel.drawing.line(y, panel.left, panel.top).segments():
                        assert segment.style is None or segment.style.color is None
                        assert segment.style is None or segment.style.bgcolor is None

    drive(play())
