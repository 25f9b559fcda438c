"""`tinycb show`: the panels as plain text, and what is wrong in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tui.harness import LOOK, drawing, whole
from tinycb.cli import main
from tinycb.tracing import TraceReader
from tinycb.tui.selection import Selection
from tinycb.tui.session import Session
from tinycb.tui.show import PANELS


def show(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_all_panels(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = show(capsys, tour, "--step", 11, "--select", "D:13", "--width", 100)
    with TraceReader(tour) as reader:
        session = whole(Session(reader))
        session.go(11)
        session.selection = Selection("D", 13)
        for name in PANELS:
            assert f"── {drawing(name).title} " in text
        record = reader[11]
        for decision in record.decisions:
            assert " ".join(decision.sentence.split()[:5]) in text
        place = session.view(LOOK).place
        assert place is not None
        assert place.formula(4) in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_mask_is_the_mask(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = show(capsys, tour, "--step", 11, "--panel", "mask", "--width", 200)
    rows = [line[6:] for line in text.splitlines()[2:9]]
    with TraceReader(tour) as reader:
        from tinycb.tui.snapshot import Snapshots

        snapshot = Snapshots(reader).at(11)
        for row, (begin, end) in zip(rows, snapshot.spans, strict=True):
            cells = row.replace("◆", "█").ljust(2 * snapshot.num_keys)
            assert [i for i in range(snapshot.num_keys) if cells[2 * i] == "█"] == list(range(begin, end))


def test_one_panel_after_another(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = show(capsys, tour, "--step", -1, "--panel", "why", "--panel", "budget")
    titles = [line.split("──")[1].strip() for line in text.splitlines() if line.startswith("──")]
    assert titles == ["Why", "Budgets"]
    for panel in PANELS:
        assert show(capsys, tour, "--step", 3, "--panel", panel, "--width", 60)


def test_a_step_reads_the_same_twice(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(capsys, tour, "--step", 7) == show(capsys, tour, "--step", 7)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--step", "99"], "there is no step 99: they go from 0 to 29"),
        (["--step", "-99"], "there is no step -99"),
        (["--step", "x"], "--step must be an integer, not 'x'"),
        (["--panel", "masks"], "there is no panel 'masks'; there are timeline, batch"),
        (["--width", "7"], "--width must be from 40 to 1000, not 7"),
        (["--select", "Q:1"], "there is no request 'Q'"),
    ],
)
def test_bad_flags(tour: Path, arguments, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tour), *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("command", ["show", "tui"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"hello\n", "is not a trace"),
        (b'{"format":"tinycb-trace","version":99,"block_size":4,"num_blocks":4}\n', "version 99"),
        (
            b'{"format":"tinycb-trace","version":1,"config":{},"block_size":4,"num_blocks":4}\n',
            "has no steps",
        ),
    ],
)
def test_bad_traces(
    tmp_path: Path, command: str, content, says: str, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    path = tmp_path / "t.jsonl"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("tinycb.commands.tui.check_terminal", lambda: None)
    assert main([command, str(path)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_a_truncated_trace_is_shown_up_to_its_last_whole_line(
    tour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tour.read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:6]) + lines[6][:40])
    assert main(["show", str(path), "--step", "-1", "--panel", "why"]) == 0
    captured = capsys.readouterr()
    assert "ends in the middle of a line; its 5 whole steps are here" in captured.err
    assert captured.out == show(capsys, tour, "--step", 4, "--panel", "why")


def test_without_a_terminal_there_is_a_hint(tour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tui", str(tour)]) == 2
    assert "tinycb show prints a step as plain text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x", "--model", "tiny-random"], "give one of TRACE"),
        (["--trace", "x"], "give --model or --prompts too"),
        (["--compare", "static"], "two traces or two policies, not 1"),
        (["--compare", "static", "x.jsonl"], "not one of each"),
        (["--step", "99"], "there is no step 99"),
        (["--step", "x"], "--step must be an integer"),
        (["--model", "tiny-random", "--block-size", "0"], "--block-size must be an integer"),
    ],
)
def test_bad_flags_of_tui(arguments, says: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("tinycb.commands.tui.check_terminal", lambda: None)
    assert main(["tui", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_the_screen_needs_no_torch() -> None:
    code = (
        "import sys, tinycb.tui.app, tinycb.tui.compare, tinycb.tui.show; "
        "assert not {'torch', 'transformers', 'tinycb.engine', 'tinycb.executors'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
