"""`tinycb export`: what it says, and what is left where no file can be written or a trace is broken."""

from __future__ import annotations

import errno
import importlib.util
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.export.reading import read
from tinycb.export.perfetto_file import PerfettoFile
from tinycb.workloads.tour import write_tour


@pytest.fixture
def trace(tmp_path: Path, cli: Cli) -> Path:
    """The tour, in the empty folder in which the command runs."""
    return write_tour(tmp_path).rename("run.jsonl")


def refused(cli: Cli, *arguments: str) -> str:
    """The one line of an export that did not happen, and left nothing."""
    before = {path: path.stat().st_mtime_ns for path in Path().iterdir()}
    result = cli("export", *arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err_lines) == 1
    assert {path: path.stat().st_mtime_ns for path in Path().iterdir()} == before
    return result.err


def test_it_says_what_it_wrote(cli: Cli, trace: Path) -> None:
    result = cli("export", "run.jsonl", "--perfetto", "run.pftrace")
    assert result.code == 0
    assert result.out.startswith("run.pftrace: 30 steps, 6 requests, ")
    assert len(read(Path("run.pftrace").read_bytes()).of("engine")) == 30
    assert sorted(os.listdir()) == ["run.jsonl", "run.pftrace"]
    umask = os.umask(0)
    os.umask(umask)
    assert Path("run.pftrace").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_that_is_there_is_kept_unless_it_is_forced(cli: Cli, trace: Path) -> None:
    Path("a").write_text("mine")
    assert "cannot write --perfetto a: it is there already; --force writes over it" in refused(
        cli, "run.jsonl", "--perfetto", "a"
    )
    assert Path("a").read_text() == "mine"
    assert cli("export", "run.jsonl", "--perfetto", "a", "--force").code == 0
    assert read(Path("a").read_bytes()).slices


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (".", "cannot write --perfetto .: it is a folder; name a file"),
        ("no/such/a", "cannot write --perfetto no/such/a: there is no folder no/such"),
        ("run.jsonl", "it is the trace itself; name another file"),
        ("./run.jsonl", "it is the trace itself"),
        ("/dev/null", "cannot write --perfetto /dev/null: it is no regular file"),
    ],
)
def test_a_place_where_nothing_can_be_written(cli: Cli, trace: Path, target: str, message: str) -> None:
    assert message in refused(cli, "run.jsonl", "--perfetto", target, "--force")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a trace: it is empty"),
        (b"hello\n", "is not a trace: line 1 is not JSON"),
        (None, "cannot read the trace broken.jsonl: No such file"),
        ("header", "broken.jsonl has no steps: there is nothing to export"),
        ("version", "has trace version 99; the versions known here are 1"),
        ("config", "max_num_seqs must be an integer of at least 1, not -3"),
        ("first", "the trace broken.jsonl is broken: line 2"),
    ],
)
def test_what_is_no_trace(cli: Cli, trace: Path, content: bytes | str | None, message: str) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)
    if isinstance(content, str):
        content = {
            "header": lines[0],
            "version": lines[0].replace(b'"version":1,', b'"version":99,') + lines[1],
            "config": lines[0].replace(b'"max_num_seqs":3', b'"max_num_seqs":-3') + lines[1],
            "first": lines[0] + b'{"step":0,"scheduled":[]}\n',
        }[content]
    if content is not None:
        Path("broken.jsonl").write_bytes(content)
    assert message in refused(cli, "broken.jsonl", "--perfetto", "a")


def test_a_trace_that_was_cut_is_exported_up_to_there(cli: Cli, trace: Path) -> None:
    Path("cut.jsonl").write_bytes(trace.read_bytes()[:-100])
    result = cli("export", "cut.jsonl", "--perfetto", "a")
    assert result.code == 0
    assert "tinycb export: the trace ends in the middle of a line; its 29 whole steps" in result.err
    assert len(read(Path("a").read_bytes()).of("engine")) == 29


def test_a_trace_that_is_broken_in_the_middle_is_exported_up_to_there(cli: Cli, trace: Path) -> None:
    lines = trace.read_bytes().splitlines(keepends=True)
    lines[11] = b'{"step":10,"sampled":7}\n'
    Path("broken.jsonl").write_bytes(b"".join(lines))
    result = cli("export", "broken.jsonl", "--perfetto", "a")
    assert result.code == 2
    assert result.out.startswith("a: 10 steps")
    assert result.err_lines[-1] == (
        "tinycb export: the trace broken.jsonl is broken: line 12 has a int for sampled; "
        "the steps before it are there"
    )
    assert len(read(Path("a").read_bytes()).of("engine")) == 10


def test_a_full_disk(cli: Cli, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(self: PerfettoFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PerfettoFile, "flush", flush)
    assert "cannot write --perfetto a: No space left on device" in refused(
        cli, "run.jsonl", "--perfetto", "a"
    )


def test_without_a_target_and_without_the_package(
    cli: Cli, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "say what to write: --perfetto run.pftrace" in refused(cli, "run.jsonl")
    monkeypatch.setattr("tinycb.commands.export.find_spec", lambda name: None)
    assert "needs PyPI's perfetto: pip install 'tinycb[export]'" in refused(
        cli, "run.jsonl", "--perfetto", "a"
    )
    assert importlib.util.find_spec("perfetto") is not None
