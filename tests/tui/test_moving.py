"""Moving through a run with keys: steps, events, conditions, marks, playing."""

from pathlib import Path

from tests.tui.harness import opened
from tinycb.tui.command_line import CommandLine


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
