"""The screen through its keys and the mouse."""

from pathlib import Path

import pytest

from tests.tui.harness import opened
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.tui.command_line import CommandLine
from tinycb.tui.keys import KEYS
from tinycb.tui.selection import Selection

NAMES = ("timeline", "batch", "why", "requests", "mask", "blocks", "budget", "place")


def test_moving(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            session = d.session
            moves = [
                ("right", 1), ("l", 2), ("left", 1), ("h", 0), ("h", 0), ("L", 10), ("shift+right", 20),
                ("shift+left", 10), ("H", 0), ("end", 29), ("l", 29), ("shift+right", 29), ("home", 0),
            ]  # fmt: skip
            for key, index in moves:
                await d.press(key)
                assert session.index == index, key
                assert f"step {index} of 29" in d.text.splitlines()[0]
                assert f"▼{index}" in d.panel_text("timeline").splitlines()[0]

    drive(play())


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


def test_goto(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            for text, index in ((":12", 12), (":+5", 17), (":-2", 15), (":0", 0), (":29", 29)):
                await d.type(text)
                assert d.screen.query_one(CommandLine).value == text[1:]
                await d.press("enter")
                assert d.session.index == index
            for text, says in (
                (":99", "there is no step 99: they go from 0 to 29"),
                (":-99", "there is no step"),
                (":x", "'x' is no step"),
                (":", "is no step"),
            ):
                await d.type(text)
                await d.press("enter")
                assert d.session.index == 29
                assert says in d.message

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


def test_break_at_a_condition(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            first = next(i for i, record in enumerate(d.session.source) if record.preempted)
            await d.press("b")
            await d.type("preempted")
            await d.press("enter")
            assert d.session.index == first
            assert "preempted begins to hold here" in d.message
            await d.press("b", "enter")  # the condition is still there
            second = d.session.index
            assert second > first
            await d.press("b", "enter")
            assert d.session.index == first
            assert "from the first step on" in d.message
            await d.press("b", *["backspace"] * 12)
            await d.type("fre<2")
            await d.press("enter")
            assert d.session.index == first
            assert "'fre' is no number" in d.message
            await d.press("b", *["backspace"] * 12)
            await d.type("waiting>77")
            await d.press("enter")
            assert d.session.index == first
            assert "waiting>77 never holds" in d.message

    drive(play())


def test_events(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            preempted = [i for i, record in enumerate(d.session.source) if record.preempted]
            await d.press("e")
            assert d.session.kind == "preemption"
            assert "n: preemption" in d.text.splitlines()[0]
            for index in preempted:
                await d.press("n")
                assert d.session.index == index
                assert f"preemption in step {index}: preempted" in d.message
            await d.press("n")
            assert "no preemption after this step" in d.message
            await d.press("N")
            assert d.session.index == preempted[-2]
            await d.press(*["e"] * 7, "e")
            assert d.session.kind is None
            await d.press("home", "n")
            assert d.session.index == 1

    drive(play())


def test_marks(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            await d.press("L", "m", "a", "home", "m", "q")  # a mark may be called like a key
            await d.press("apostrophe", "a")
            assert d.session.index == 10
            await d.press("apostrophe", "q")
            assert d.session.index == 0
            await d.press("apostrophe", "apostrophe")
            assert d.session.index == 10
            await d.press("apostrophe", "x")
            assert "there is no mark x; there are" in d.message
            await d.press("m", "escape", "l")
            assert d.session.index == 11

    drive(play())


def test_playing(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            await d.press(*["right_square_bracket"] * 9)
            assert d.session.speed == 32
            assert "32 steps a second" in d.message
            await d.press("space")
            for _ in range(200):
                await d.pilot.pause(0.02)
                if not d.session.playing:
                    break
            assert d.session.index == 29
            await d.press(*["left_square_bracket"] * 9)
            assert d.session.speed == 0.5
            await d.press("space")  # at the end, it begins anew
            assert d.session.playing
            assert d.session.index == 0
            await d.press("space")
            assert not d.session.playing
            d.session.break_at("step==3")
            d.session.go(0)
            d.session.playing = True
            while d.session.playing:
                d.session.tick()
            assert d.session.index == 3

    drive(play())


def test_the_selection_is_the_same_everywhere(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (200, 60)) as d:
            await d.type(":11")
            await d.press("enter")
            d.session.selection = Selection("D", 13)
            await d.press("z", "z")
            place = d.session.snapshots.at(11).place(d.session.selection)
            assert place is not None
            assert f"slot = block_table[D][13 // 4] * 4 + 13 % 4 = {place.physical}*4+1 = {place.slot}" in (
                d.panel_text("place")
            )
            sources = d.session.header["sources"]
            assert sources["slot_mapping"] in d.panel_text("place")
            assert f"row {place.query} of T, column {place.key} of S" in d.panel_text("place")
            assert "block_table[D]" in d.panel_text("blocks")
            assert "▸D" in d.panel_text("requests")
            before = d.text
            for _ in range(2):  # j and k walk through the requests of this step
                await d.press("j")
            await d.press("k", "k")
            assert d.session.selection.request_id == "C"
            assert d.text != before

    drive(play())


def test_arrows_pick_inside_a_panel(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (200, 60)) as d:
            for number, name in enumerate(NAMES, start=1):
                await d.type(":11")
                await d.press("enter", str(number), "enter")
                seen = set()
                for key in ("right", "down", "down", "up", "left", "shift+right"):
                    await d.press(key)
                    seen.add((d.session.selection, d.session.index))
                    assert d.session.selection.request_id is not None
                assert len(seen) > 1, name
                assert (d.session.index != 11) == (name == "timeline")
                await d.press("escape")

    drive(play())


def test_what_the_arrows_pick(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour, (200, 60)) as d:
            d.session.go(11)
            d.session.selection = Selection("D", 13)
            snapshot = d.session.snapshots.at(11)
            for number, key, chosen in (
                (2, "right", Selection("D", 14)), (2, "left", Selection("D", 13)),
                (5, "left", Selection("D", 12)), (5, "down", Selection("D", 13)),
                (8, "right", Selection("D", 14)), (8, "left", Selection("D", 13)),
                (2, "up", Selection("C")),
            ):  # fmt: skip
                await d.press(str(number), "enter", key, "escape")
                assert d.session.selection == chosen
            table = snapshot.tables["D"]
            d.session.selection = Selection("D", 0)
            await d.press("6", "enter", "right")
            assert snapshot.place(d.session.selection).physical == table[0] + 1

    drive(play())


def test_what_is_selected_is_in_sight(drive, tmp_path: Path) -> None:
    """Whatever is scrolled where: a step of 150 tokens on a small screen."""
    config = EngineConfig(block_size=4, num_blocks=64, max_num_batched_tokens=150)
    with Engine(config, ScriptedExecutor({"A": [7] * 9}), trace=tmp_path / "t") as engine:
        engine.add_request(Request("A", list(range(1000, 1150)), SamplingParams(max_tokens=9)))
        while engine.has_unfinished_requests():
            engine.step()

    async def play() -> None:
        async with opened(tmp_path / "t", (80, 24)) as d:
            await d.press("z")
            for position in (0, 149, 75, 76, 10, 140, 3):
                d.session.selection = Selection("A", position)
                await d.press("2")
                assert f"#{1000 + position}" in d.panel_text("batch").split()
                await d.press("5")
                rows = d.panel_text("mask").splitlines()
                assert rows[0].find("▼") >= 6 or str(position)[-2:] in rows[0][6:]
                assert any(row.startswith(f"A {position:>3}") and "◆◆" in row for row in rows)
                await d.press("6")
                block = position // 4
                assert f" {block} " in d.panel_text("blocks").replace("→", " ")

    drive(play())


def test_clicks(drive, tour: Path) -> None:
    """What is clicked is chosen, in every panel; and choosing it moves the others there."""

    async def play() -> None:
        async with opened(tour, (200, 60)) as d:
            await d.type(":11")
            await d.press("enter")
            snapshot = d.session.snapshots.at(11)

            async def click(name: str, x: int, y: int) -> Selection:
                panel = d.screen.panels[name]
                offset = panel.content_region.offset - panel.region.offset
                await d.pilot.click(panel, offset=(x + offset.x, y + offset.y))
                await d.settle()
                return d.session.selection

            batch = d.screen.panels["batch"].drawing
            assert await click("batch", 18 + 3 * batch.cell, 2) == Selection("D", 13)
            mask = d.screen.panels["mask"].drawing
            s = int(snapshot.key_start[1]) + 4
            x = 6 + s // mask.across * mask.cell
            assert await click("mask", x, 1) == Selection(*snapshot.key_at(s // mask.across * mask.across))
            blocks = d.screen.panels["blocks"].drawing
            block = snapshot.tables["B"][-1]
            row, column = divmod(block, blocks.per_row)
            chosen = await click("blocks", column * blocks.cell, row * blocks.lines + 1)
            assert snapshot.place(chosen).physical == block
            requests = d.screen.panels["requests"].drawing
            names = [requests._entry(i).request_id for i in range(requests.count)]
            assert await click("requests", 5, 1 + names.index("E")) == Selection("E")
            assert "E waits" in d.panel_text("why")
            timeline = d.screen.panels["timeline"].drawing
            assert await click("timeline", timeline.label + 4 * timeline.cell, 3) == Selection("C")
            assert d.session.index == 4
            assert await click("why", 1, 0) == Selection("C")

    drive(play())


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


def test_many_keys_cost_few_drawings(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            before = d.screen.drawings
            for _ in range(25):
                d.screen.do("step(1)")
            await d.settle()
            assert d.session.index == 25
            assert d.screen.drawings - before <= 2
            assert "step 25 of 29" in d.text

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


def test_every_action_has_a_key_and_a_method(drive, tour: Path) -> None:
    async def play() -> None:
        async with opened(tour) as d:
            actions = {key.action.partition("(")[0] for key in KEYS} - {"command_palette"}
            methods = {name[3:] for name in dir(d.screen) if name.startswith("do_")}
            assert actions == methods

    drive(play())
