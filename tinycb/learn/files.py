"""Where chapters, exercises, checks and solutions lie: in a checkout's `tutorials/`, or in the wheel.

    tutorials/03_iteration_level.py        the chapter
    tutorials/exercises/03_refill.py       what the learner gets, with a blank to fill
    tutorials/checks/03_refill.py          `check(exercise)` and `HINTS`
    tutorials/solutions/03_refill.py       the blank, filled

A file's first two digits are its chapter; nothing else is registered anywhere.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tinycb.learn.cells import read_cells

__all__ = ["ChapterFile", "ExerciseFile", "chapters", "find_chapter", "tutorials"]

_NAME = re.compile(r"^(\d\d)_[a-z0-9_]+\.py$")


@dataclass(frozen=True)
class ExerciseFile:
    """The three files of an exercise. name: such as `03_refill`."""

    name: str
    blank: Path
    check: Path
    solution: Path


@dataclass(frozen=True)
class ChapterFile:
    """number: 1 to 99."""

    number: int
    path: Path

    @cached_property
    def title(self) -> str:
        """The heading of its first cell, without the number."""
        for cell in read_cells(self.path):
            if cell.kind == "markdown" and cell.text.startswith("# "):
                return re.sub(r"^\d+\. ", "", cell.text.splitlines()[0][2:]).strip()
        return self.path.stem

    @cached_property
    def exercises(self) -> tuple[ExerciseFile, ...]:
        folder = tutorials()
        return tuple(
            ExerciseFile(path.stem, path, folder / "checks" / path.name, folder / "solutions" / path.name)
            for path in sorted((folder / "exercises").glob(f"{self.number:02d}_*.py"))
        )


def tutorials() -> Path:
    """The folder of the chapters. Raises FileNotFoundError if this installation has none."""
    here = Path(__file__).resolve().parent
    for folder in (here / "tutorials", here.parent.parent / "tutorials"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("this installation of tinycb has no tutorials; install it again")


def chapters() -> list[ChapterFile]:
    """All there are, in order."""
    files = sorted(tutorials().glob("[0-9][0-9]_*.py"))
    return [ChapterFile(int(path.name[:2]), path) for path in files if _NAME.match(path.name)]


def find_chapter(wanted: str) -> ChapterFile:
    """A chapter by its number or its file. Raises ValueError that says what there is."""
    if wanted.endswith(".py"):
        path = Path(wanted)
        if not path.is_file():
            raise ValueError(f"there is no file {wanted}")
        if not _NAME.match(path.name):
            raise ValueError(f"{path.name} is no chapter's name; one is like 03_iteration_level.py")
        return ChapterFile(int(path.name[:2]), path.resolve())
    known = chapters()
    numbers = [chapter.number for chapter in known]
    if not wanted.isdecimal() or int(wanted) not in numbers:
        near = difflib.get_close_matches(wanted, [chapter.path.stem for chapter in known], 1)
        hint = f"did you mean {int(near[0][:2])}?" if near else f"there are {', '.join(map(str, numbers))}"
        raise ValueError(f"there is no chapter {wanted}; {hint}")
    return known[numbers.index(int(wanted))]
