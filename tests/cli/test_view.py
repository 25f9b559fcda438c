"""Pictures: they fit the screen, say what the record says, and never with colour alone."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console, Group
from rich.text import Text

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.tracing import StepRecord
from tinycb.view.packed_row import bar, packed_row
from tinycb.view.picture import picture, step_line
from tinycb.view.results import seconds
from tinycb.view.run_state import Frame, RunInfo, RunState, Segment
from tinycb.view.signs import ASCII, BLOCKS, Glyphs, letter, printable
from tinycb.view.timeline import history_line, timeline

LENGTHS = (12, 300, 40, 5, 80, 9, 700, 20)
OUTPUTS = (30, 20, 10, 40, 16, 32, 24, 8)
SIZES = ((80, 24), (120, 40), (60, 16), (300, 100), (20, 5))


def run(
    batching: str, count: int = 8, num_blocks: int = 90, **knobs: object
) -> Iterator[tuple[RunState, StepRecord]]:
    """A run with every kind of event; yields after each step."""
    values: dict[str, object] = {
        "max_num_seqs": 6,
        "max_num_batched_tokens": 128,
        "max_model_len": 1000,
        **knobs,
    }
    config = EngineConfig(batching=batching, num_blocks=num_blocks, **values)  # type: ignore[arg-type]
    names = [letter(i) for i in range(count)]
    engine = Engine(config, ScriptedExecutor({name: [1] * 100 for name in names}))
    budget = config.max_num_batched_tokens if batching == "chunked" else None
    state = RunState(RunInfo("scripted", batching, "paged", num_blocks, budget), names)
    for i, name in enumerate(names):
        params = SamplingParams(max_tokens=OUTPUTS[i % 8], ignore_eos=True)
        engine.add_request(Request(name, [i % 50] * LENGTHS[i % 8], params))
    while engine.has_unfinished_requests():
        record = engine.step()
        state.observe(record)
        yield state, record


def lines(group: Group, width: int = 400) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(group)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("batching", ["static", "continuous", "chunked"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_step_fits_the_screen(batching: str, width: int, height: int) -> None:
    for state, _ in run(batching):
        drawn = lines(picture(state.frame(), width, height))
        assert len(drawn) <= max(16, height)
        assert max(map(len, drawn)) <= max(60, width)


@pytest.mark.parametrize("count", [1, 30, 200])
def test_any_number_of_requests_fits_80_by_24(count: int) -> None:
    for step, (state, _) in enumerate(run("chunked", count, num_blocks=4000, max_num_seqs=200)):
        if step % 7 == 0:
            drawn = lines(picture(state.frame(), 80, 24))
            assert len(drawn) <= 24
            assert max(map(len, drawn)) <= 80


@pytest.mark.parametrize("batching", ["static", "continuous", "chunked"])
def test_the_packed_row_is_the_batch_that_ran(batching: str) -> None:
    """With room for every token, the row of letters is the request of each row of T, in order."""
    for state, record in run(batching):
        if not record.scheduled:
            continue
        packed = record.packed
        row = packed_row(state.segments(record), 10_000, BLOCKS)
        starts = packed.query_start_loc.tolist()
        names = [n for i, n in enumerate(packed.request_ids) for _ in range(starts[i], starts[i + 1])]
        assert row.letters.plain == "".join(names)
        is_padding = [slot < 0 for slot in packed.slot_mapping.tolist()]
        assert [cell == BLOCKS.padding for cell in row.glyphs.plain] == is_padding
        assert row.glyphs.plain.count(BLOCKS.padding) == record.num_padded == packed.num_padded
        assert row.scale == 1


@pytest.mark.parametrize("width", [10, 50, 80])
def test_a_row_that_is_too_long_is_drawn_to_scale(width: int) -> None:
    segments = [Segment(0, 700, False), Segment(1, 1, True), Segment(2, 100, False, padding=600)]
    row = packed_row(segments, width, BLOCKS)
    assert len(row.letters) == len(row.glyphs) == width
    assert {"A", "B", "C"} <= set(row.letters.plain)
    assert row.letters.plain.count("A") > row.glyphs.plain.count(BLOCKS.decode) == 1
    assert row.scale == pytest.approx(1401 / width)


def test_requests_that_find_no_place_are_counted() -> None:
    row = packed_row([Segment(i, 1, True) for i in range(100)], 50, BLOCKS)
    assert len(row.letters) <= 50
    assert row.hidden == 100 - 50


def frames(batching: str, **knobs: object) -> list[Frame]:
    return [state.frame() for state, _ in run(batching, **knobs)]


def test_words_glyphs_and_numbers_say_what_happened() -> None:
    chunked = frames("chunked")
    text = "\n".join(lines(picture(chunked[2], 80, 24)))
    assert "128 of 128 tokens" in text
    assert "the budget of 128 tokens is spent" in text
    assert " B   prefill       300/300" in text
    assert BLOCKS.legend in text
    static = "\n".join(lines(picture(frames("static")[20], 80, 24)))
    assert "padding" in static
    assert "holds its slot" in static
    assert " C   done            40/40    10/10" in static


def test_a_preemption_is_seen() -> None:
    *steps, (state, _) = run("chunked", 6, num_blocks=30)
    preempted = [name for _, record in steps for name in record.preempted]
    assert preempted
    for name in preempted:
        assert "x" in state.requests[name].history
    assert all(view.output == OUTPUTS[view.index] for view in state.requests.values())
    assert BLOCKS.preempted in "".join(
        line.plain for line in timeline(list(state.requests.values()), 500, 600, BLOCKS)
    )


def test_the_timeline_folds_and_keeps_what_is_rare() -> None:
    *_, (state, record) = run("chunked")
    views = list(state.requests.values())
    whole = timeline(views, state.num_steps, 400, BLOCKS)
    folded = timeline(views, state.num_steps, 30, BLOCKS)
    assert len(whole) == len(folded) == 1 + len(views)
    assert all(len(line) <= 30 for line in folded)
    for long, short in zip(whole[1:], folded[1:], strict=True):
        assert (BLOCKS.prefill in long.plain) == (BLOCKS.prefill in short.plain) is True
    first = history_line(views[0], 0, record.step, 400, BLOCKS).plain
    assert first.startswith(BLOCKS.prefill + BLOCKS.decode * 29)


@pytest.mark.parametrize("glyphs", [BLOCKS, ASCII])
def test_every_glyph_is_its_own_and_one_cell_wide(glyphs: Glyphs) -> None:
    acts = (glyphs.prefill, glyphs.decode, glyphs.padding, glyphs.waits, glyphs.preempted)
    assert all(Text(glyph).cell_len == 1 for glyph in acts)
    assert len(set(acts)) == len(acts) or glyphs is ASCII
    drawn = "\n".join(lines(picture(frames("static")[20], 80, 24, glyphs)))
    assert glyphs is BLOCKS or drawn.isascii() or "…" in drawn


def test_without_colour_nothing_is_lost() -> None:
    """Two requests of one colour, twelve apart, still differ."""
    assert len({letter(i) for i in range(2000)}) == 2000


def test_step_line_is_one_plain_line() -> None:
    for frame in frames("chunked"):
        line = step_line(frame)
        assert "\n" not in line
        assert f"step {frame.step}: " in line
    assert "prefill B:57 C:40 D:5 E:25, decode A" in step_line(frames("chunked")[2])


@pytest.mark.parametrize(("used", "cells"), [(0, 0), (1, 1), (50, 5), (99, 10), (100, 10)])
def test_a_bar_never_hides_something(used: int, cells: int) -> None:
    assert bar(used, 100, 10, BLOCKS).plain == BLOCKS.prefill * cells + BLOCKS.free * (10 - cells)


def test_durations_have_three_digits() -> None:
    values = (None, 0.00012, 0.0455, 0.09996, 0.9996, 1.234, 12.34, 1234.0)
    assert [seconds(v) for v in values] == [
        *("-", "0.12 ms", "45.5 ms", "100 ms", "1.00 s", "1.23 s", "12.3 s", "1234 s"),
    ]


def test_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b]0;title\x07b\r\n\tc\u009b") == "a\ufffd]0;title\ufffdb\ufffd\n\tc\ufffd"


def test_pictures_need_no_torch_and_help_needs_nothing() -> None:
    """In a fresh process: what is imported is what it costs to start."""
    code = """
import sys
import tinycb.view.picture, tinycb.view.results, tinycb.view.comparison
assert "torch" not in sys.modules and "textual" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    code = """
import sys
from tinycb.cli import main
main(["--help"]); main(["run", "--help"]); main(["doctor", "--help"])
heavy = {"torch", "numpy", "rich", "transformers", "triton", "numba", "textual"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
