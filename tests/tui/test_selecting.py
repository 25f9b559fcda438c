"""One selection in all panels, made with the arrows or the mouse."""

from pathlib import Path

from tests.tui.harness import NAMES, opened
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.tui.selection import Selection


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
