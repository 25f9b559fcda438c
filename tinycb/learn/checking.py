"""Checks a learner's file, in a process of its own: it may hang, crash or end the interpreter.

The child imports the check first and says so, so that the time limit counts nothing but the learner's code.
Its half is `check_process.py`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tinycb.learn.files import ExerciseFile

__all__ = ["LIMIT_SECONDS", "Verdict", "check_file", "place"]

START_SECONDS = 120.0  # to import torch on a busy machine
LIMIT_SECONDS = 60.0  # a right answer may be slow, and the machine busy


@dataclass(frozen=True, slots=True)
class Verdict:
    """kind: "passed", "wrong" (a property failed), "blank" (nothing is filled in), "raised", or "broken".

    "broken": the file is no Python, hangs, or died. line: the one line to print.
    """

    kind: str
    line: str


def place(exercise: ExerciseFile, folder: Path) -> tuple[Path, bool]:
    """The learner's copy in `folder`, made if it is not there; whatever is there is left as it is.

    Returns the path, and whether it is new. Raises OSError if it cannot be made.
    """
    path = folder / exercise.blank.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(exercise.blank.read_text("utf-8"))
    except FileExistsError:
        return path, False
    return path, True


def check_file(exercise: ExerciseFile, path: Path, limit: float = LIMIT_SECONDS) -> Verdict:
    """Run the exercise's check on a file. limit: seconds for the learner's code."""
    name = exercise.name
    try:
        ast.parse(path.read_text("utf-8"), filename=path.name)
    except SyntaxError as error:
        return Verdict("broken", f"{path}:{error.lineno}: this is not Python: {error.msg}")
    except (OSError, ValueError) as error:
        return Verdict("broken", f"cannot read {path}: {getattr(error, 'strerror', None) or error}")

    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tinycb.learn.check_process", str(exercise.check), str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
        )
        try:
            lines, ended = _answers(process, limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
    answer = next((line for line in lines if line.get("kind") not in (None, "ready")), None)
    if answer is not None:
        return Verdict(answer["kind"], f"{name}: {answer['line']}")
    if not any(line.get("kind") == "ready" for line in lines):
        return Verdict("broken", f"{name}: its check did not start: {last}")
    if not ended:
        return Verdict(
            "broken", f"{name}: no answer after {limit:g} seconds; does a loop in {path} never end?"
        )
    return Verdict("broken", f"{name}: {path} ended the interpreter: {last}")


def _answers(process: subprocess.Popen[str], limit: float) -> tuple[list[dict[str, str]], bool]:
    """The child's lines until it ends or its time is up, and whether it ended."""
    assert process.stdout is not None
    lines: list[dict[str, str]] = []
    deadline = time.monotonic() + START_SECONDS
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return lines, False
        data = os.read(descriptor, 1 << 16)
        if not data:
            return lines, True
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            lines.append(json.loads(line))
            if lines[-1].get("kind") == "ready":
                deadline = time.monotonic() + limit
            else:
                return lines, True
