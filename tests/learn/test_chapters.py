"""Every chapter runs, has what a chapter must have, and takes the same steps as ever."""

import os
from pathlib import Path

import pytest

from tests.learn.harness import CHAPTERS, EXERCISES, each_chapter, run_once
from tinycb.learn.cells import read_cells
from tinycb.learn.files import tutorials
from tinycb.model.checkpoint import ModelError, smollm2_file

GOLDEN = Path(__file__).parent / "golden"
FAST_SECONDS, REAL_SECONDS, ALL_REAL_SECONDS = 15, 60, 360


@pytest.mark.parametrize("chapter", each_chapter())
def test_a_fast_chapter_is_complete_and_takes_seconds(chapter):
    _, notes = run_once(chapter, "fast")
    assert notes["missing"] == []
    assert sorted(notes["exercises"]) == [exercise.name for exercise in chapter.exercises]
    assert notes["seconds"] < FAST_SECONDS


@pytest.mark.parametrize("chapter", each_chapter())
def test_a_chapter_s_runs_take_the_steps_of_the_golden_table(chapter):
    """TINYCB_WRITE_GOLDEN=1 writes the table anew; then read its difference."""
    _, notes = run_once(chapter, "fast")
    path = GOLDEN / f"{chapter.path.stem}.txt"
    if os.environ.get("TINYCB_WRITE_GOLDEN"):
        path.write_text(notes["golden"], encoding="utf-8")
    assert notes["golden"] == path.read_text("utf-8")


@pytest.mark.parametrize("chapter", each_chapter())
def test_the_terminal_shows_the_prose_and_the_questions_and_waits_for_nobody(chapter):
    out, _ = run_once(chapter, "fast")
    words = " ".join(out.split())
    headings = [
        line.lstrip("# ")
        for cell in read_cells(chapter.path)
        if cell.kind == "markdown"
        for line in cell.text.splitlines()
        if line.startswith("#")
    ]
    assert [heading for heading in headings if heading.replace("`", "") not in words] == []
    assert words.count("Predict: ") == words.count("Answer: ") >= 2
    assert "\x1b" not in out


@pytest.mark.slow
@pytest.mark.smollm2
def test_every_chapter_runs_in_full_on_smollm2_within_a_minute():
    try:
        smollm2_file()
    except ModelError as error:
        pytest.skip(str(error))
    seconds = {}
    for chapter in CHAPTERS:
        _, notes = run_once(chapter, "real")
        assert notes["missing"] == []
        seconds[chapter.path.stem] = notes["seconds"]
    assert {name: s for name, s in seconds.items() if s >= REAL_SECONDS} == {}
    assert sum(seconds.values()) < ALL_REAL_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.path.stem)
def test_a_chapter_runs_as_a_notebook(chapter, monkeypatch, tmp_path):
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    for name, value in (
        ("TINYCB_LEARN_FAST", "1"),
        ("OMP_WAIT_POLICY", "passive"),
        ("TINYCB_CACHE", str(tmp_path)),
        ("IPYTHONDIR", str(tmp_path)),
        ("JUPYTER_RUNTIME_DIR", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    notebook = jupytext.read(chapter.path)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = "\n".join(str(output.get("data", {}).get("text/plain", "")) for output in outputs)
    assert shown.count("Predict: ") == shown.count("Answer: ") >= 2


def test_every_file_of_the_tutorials_belongs_to_a_chapter():
    """A chapter's golden table, its exercises, their checks and their solutions, and no other file."""
    folder = tutorials()
    names = {f"{exercise.name}.py" for exercise in EXERCISES}
    for part in ("exercises", "checks", "solutions"):
        assert {path.name for path in (folder / part).glob("*.py")} == names
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {chapter.path.stem for chapter in CHAPTERS}
    numbers = [chapter.number for chapter in CHAPTERS]
    assert len(set(numbers)) == len(numbers)
