"""Whose the keys are, what help and palette say of them, and what s and q do."""

from pathlib import Path

import pytest

from tests.tui.harness import NAMES, opened
from tinycb.tui.command_line import CommandLine
from tinycb.tui.keys import KEYS


def test_keys_work_whichever_panel_has_the_focus(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            for number, name in enumerate(NAMES, start=1):
                panel = d.screen.panels[name]
                await d.press("home", str(number), "l", "l")
                assert d.screen.focused is panel
                assert d.session.index == 2
                await d.press("enter", "l")
                assert d.session.index == 3
                assert panel.inside
                assert "arrows pick" in d.message
                await d.press("escape", "left")
                assert not panel.inside
                assert d.session.index == 2

    drive(play())


def test_a_line_that_is_typed_has_all_keys(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            await d.type("l")
            await d.press("b")
            await d.type("qhlnN mzs1?")
            await d.press("left", "right", "home", "end", "tab", "up", "down")
            line = d.screen.query_one(CommandLine)
            assert line.value == "qhlnN mzs1?"
            assert line.is_open
            assert d.session.index == 1
            await d.press("escape")
            assert not line.is_open
            assert d.session.condition is None
            await d.press("l")
            assert d.session.index == 2
            await d.press("colon", "5", "escape", "l")
            assert d.session.index == 3

    drive(play())


def test_every_action_has_a_key_and_a_method(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            actions = {key.action.partition("(")[0] for key in KEYS} - {"command_palette"}
            methods = {name[3:] for name in dir(d.screen) if name.startswith("do_")}
            assert actions == methods

    drive(play())


def test_help_names_every_key_and_the_panel(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (120, 60)) as d:
            await d.press("5", "question_mark")
            for key in KEYS:
                if not key.action.startswith("panel_number"):
                    assert key.text[:40] in d.text
            assert "Mask (T, S)" in d.text
            await d.press("escape")
            await d.press("l")
            assert d.session.index == 1

    drive(play())


def test_palette_and_themes(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            await d.press("ctrl+p")
            await d.type("next refusal")
            await d.pilot.pause(0.3)
            await d.press("enter")
            for _ in range(50):
                await d.settle()
                if d.session.index:
                    break
            assert d.session.source[d.session.index].refused
            d.app.switch_look("light")
            await d.settle()
            assert d.screen.look.mode == "light"
            assert d.app.theme == "tinycb-light"

    drive(play())


def test_save(drive, tour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            await d.press("l", "s")
            assert "saved as tinycb-step-1.svg" in d.message
            assert (tmp_path / "tinycb-step-1.svg").read_text().startswith("<svg")
            (tmp_path / "tinycb-step-2.svg").mkdir()
            await d.press("l", "s")
            assert "cannot write tinycb-step-2.svg" in d.message

    monkeypatch.chdir(tmp_path)
    drive(play())


def test_quit(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            await d.pilot.press("q")
            await d.pilot.pause()
            assert not d.app.is_running or d.app._exit

    drive(play())
