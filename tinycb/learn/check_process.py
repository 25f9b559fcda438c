"""The child of `checking.py`: `python -m tinycb.learn.check_process CHECK LEARNERS_FILE`.

Lines of JSON go to standard output, which the learner's code cannot reach: its own prints go to stderr.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import IO

from tinycb.learn.expecting import Wrong

__all__ = ["judge", "load_file"]


def load_file(path: Path, name: str) -> ModuleType:
    """A file as a module of that name; it is not put among the imported ones for others to find."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def judge(check: ModuleType, path: Path) -> tuple[str, str]:
    """The kind and the line of a verdict on a file."""
    try:
        check.check(load_file(path, "exercise"))
    except Wrong as wrong:
        return "wrong", str(wrong)
    except NotImplementedError as blank:
        return "blank", f"nothing is filled in yet: {blank or 'a blank is left'}"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if Path(f.filename) == path), None)
        where = f", line {line}" if line else ""
        return "raised", f"{path.name}{where} raised {type(error).__name__}: {error}".replace("\n", " ")
    return "passed", "passed"


def main(check_path: str, path: str) -> None:
    answers: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    check = load_file(Path(check_path), "check")

    def say(kind: str, line: str) -> None:
        answers.write(json.dumps({"kind": kind, "line": line}) + "\n")
        answers.flush()

    say("ready", "")
    say(*judge(check, Path(path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
