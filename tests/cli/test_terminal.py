"""The terminal itself: a picture on a tty, plain lines elsewhere, Ctrl-C, and a reader that goes away."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.conftest import TINY, start
from tinycb.cli import main
from tinycb.commands.serving import StopSwitch, Stopwatch
from tinycb.commands.terminal import glyphs_for, is_interactive
from tinycb.tracing import TraceReader
from tinycb.view.signs import ASCII, BLOCKS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")


def on_a_tty(
    arguments: list[str], env: dict[str, str], columns: int = 80, lines: int = 24
) -> tuple[int, str]:
    """Exit code and everything a terminal of this size would have got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = start(arguments, {"TERM": "xterm-256color", **env}, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    got = b""
    while True:
        ready, _, _ = select.select([ours], [], [], 60)
        if not ready:
            process.kill()
            break
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        got += data
    os.close(ours)
    return process.wait(timeout=30), got.decode(errors="replace")


def test_a_tty_gets_the_picture_in_colour() -> None:
    code, text = on_a_tty(["run", "hello", "world", *TINY, "--max-tokens", "40"], {})
    assert code == 0
    assert "\x1b[" in text
    assert "tiny-random · chunked · paged" in text
    assert "blocks" in text
    assert "TTFT" in text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_no_escape_sequence_at_all(env: dict[str, str]) -> None:
    code, text = on_a_tty(["run", "hello", "world", *TINY], env)
    assert code == 0
    assert "\x1b" not in text
    assert "step 0: prefill A:5 B:5" in text


def test_without_a_tty_there_are_plain_lines_in_two_streams() -> None:
    process = start(["run", "hello", *TINY])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "\x1b" not in out + err
    assert "TTFT" in out
    assert "step 0: prefill A:5" in err


def interrupt_when(process: subprocess.Popen[str], sign: str) -> tuple[str, str]:
    """Press Ctrl-C once the sign shows on stderr; what the process printed from there on."""
    assert process.stderr is not None
    for line in process.stderr:
        if sign in line:
            break
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=60)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("\n".join(f"prompt {i}" for i in range(60)))
    flags = ["--max-num-seqs", "1", "--max-tokens", "300", "--trace", str(tmp_path / "run.jsonl")]
    process = start(["run", "--prompts", str(tmp_path / "p.txt"), *TINY, *flags])
    out, err = interrupt_when(process, "C is done")
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert last.startswith("tinycb run: interrupted: ")
    assert last.endswith(" of 60 requests were finished")
    assert "Traceback" not in err
    assert "A  prompt 0" in out
    with TraceReader(tmp_path / "run.jsonl") as reader:
        assert not reader.truncated
        assert {"A", "B", "C"} <= {name for record in reader for name in record.finished}
        assert len(reader[-1].aborted) > 50
    assert main(["replay", str(tmp_path / "run.jsonl")]) == 0


def test_ctrl_c_while_comparing_prints_the_finished_rows(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("\n".join(f"prompt {i}" for i in range(20)))
    flags = ["--compare", "--max-num-seqs", "2", "--max-tokens", "100"]
    process = start(["run", "--prompts", str(tmp_path / "p.txt"), *TINY, *flags])
    out, err = interrupt_when(process, "2/4 static")
    assert process.returncode == 130
    assert "one at a time" in out
    assert "chunked" not in out
    assert "interrupted" in err.splitlines()[-1]


@pytest.mark.parametrize("delay", [0.3, 0.7, 1.2])
def test_ctrl_c_at_any_time_is_one_line(delay: float) -> None:
    process = start(["run", "--prompts", "-", *TINY], stdin=subprocess.PIPE)
    time.sleep(delay)  # it is importing, or waits for a prompt on standard input
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "tinycb run: interrupted\n"
    assert out == ""


def test_a_reader_that_goes_away_is_no_error() -> None:
    flags = "--model tiny-random --max-tokens 2 --quiet --json --prompts -"
    code = f"{sys.executable} -m tinycb run {flags} | head -c 10"
    prompts = "\n".join(map(str, range(600)))
    done = subprocess.run(["bash", "-c", code], input=prompts, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout == '{"id": "A"'


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str) -> None:
    code = f"{sys.executable} -m tinycb run --model tiny-random --max-tokens 2 hello {closed}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert ("prefill" in done.stderr) == ("2>&-" not in closed)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_finds_no_room_is_one_line() -> None:
    code = f"{sys.executable} -m tinycb run --model tiny-random --max-tokens 2 --quiet hello >/dev/full"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "tinycb run: cannot write the output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(("model", "code"), [("tiny-random", 0), ("nothing-like-it", 2)])
def test_a_full_stderr_costs_no_answer(model: str, code: int) -> None:
    command = f"{sys.executable} -m tinycb run --model {model} --max-tokens 2 hello 2>/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    assert ("hello" in done.stdout) == (code == 0)


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────


class _Stream:
    def __init__(self, encoding: str, tty: bool = True) -> None:
        self.encoding, self._tty = encoding, tty

    def isatty(self) -> bool:
        return self._tty


def test_glyphs_are_what_the_encoding_has() -> None:
    assert glyphs_for(_Stream("utf-8")) is BLOCKS  # type: ignore[arg-type]
    assert glyphs_for(_Stream("latin-1")) is ASCII  # type: ignore[arg-type]
    assert glyphs_for(_Stream("ascii")) is ASCII  # type: ignore[arg-type]


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_what_is_interactive(bare_environment: pytest.MonkeyPatch) -> None:
    assert is_interactive(_Stream("utf-8"))  # type: ignore[arg-type]
    assert not is_interactive(_Stream("utf-8", tty=False))  # type: ignore[arg-type]
    bare_environment.setenv("NO_COLOR", "1")
    assert not is_interactive(_Stream("utf-8"))  # type: ignore[arg-type]


def test_the_stopwatch_stands_still_while_drawing() -> None:
    stopwatch = Stopwatch()
    before = stopwatch()
    with stopwatch.paused():
        time.sleep(0.05)
    assert stopwatch() - before < 0.04


def test_the_second_ctrl_c_does_not_wait() -> None:
    with StopSwitch() as switch:
        signal.raise_signal(signal.SIGINT)
        assert switch.is_set
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
