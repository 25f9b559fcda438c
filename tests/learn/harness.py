"""What the tests of the tutorials share: the chapters, and one run of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tinycb.learn.files import ChapterFile, chapters

ROOT = Path(__file__).parents[2]
CHAPTERS = chapters()
EXERCISES = [exercise for chapter in CHAPTERS for exercise in chapter.exercises]
SMOKE = 3  # the chapter that `make test` runs; the others are slow


def each_chapter() -> list[Any]:
    """Parameters: every chapter, all but one of them marked slow."""
    marks = {c.number: () if c.number == SMOKE else (pytest.mark.slow,) for c in CHAPTERS}
    return [pytest.param(c, id=c.path.stem, marks=marks[c.number]) for c in CHAPTERS]


@cache
def run_once(chapter: ChapterFile, mode: str) -> tuple[str, dict[str, Any]]:
    """What the chapter printed, and what it did. Fails with its last line if it fails."""
    with TemporaryDirectory() as folder:
        notes = Path(folder) / "notes.json"
        environment = {
            **os.environ,
            "OMP_WAIT_POLICY": "passive",
            "PYTHONPATH": str(ROOT),
            "TINYCB_CACHE": cache_for(mode, folder),
        }
        command = [sys.executable, "-m", "tests.learn.chapter_process", str(chapter.path), mode, str(notes)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{chapter.path.name}: {done.stderr.strip() or done.stdout[-500:]}"
        return done.stdout, json.loads(notes.read_text("utf-8"))


def cache_for(mode: str, folder: str) -> str:
    """The user's cache has the converted SmolLM2; a fast run needs none of it."""
    from tinycb.user_cache import cache_root

    return folder if mode == "fast" else str(cache_root())
