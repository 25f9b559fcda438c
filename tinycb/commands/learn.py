"""The tutorials: list the chapters, run one, and check its exercises."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tinycb.commands.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, CommandError, one_line

if TYPE_CHECKING:
    from tinycb.learn.files import ChapterFile, ExerciseFile

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb learn                 the chapters, and how far you are
  tinycb learn 3               run chapter 3 on SmolLM2
  tinycb learn 3 --fast        on a tiny random model: no download, a few seconds
  tinycb learn --check 3       put its exercises into ./tinycb-exercises, and check what you wrote there
  tinycb learn --hint 3        one hint; again for the next
  tinycb learn --solution 3    how it can be done

exit code: 0, or 1 if an exercise does not pass yet, or 2 on bad input
"""
_FOLDER = "tinycb-exercises"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tinycb learn`."""
    parser.add_argument("chapter", nargs="?", metavar="CHAPTER", help="a number, or a chapter's file")
    parser.add_argument("--fast", action="store_true", help="run on a tiny random model instead of SmolLM2")
    for name, text in (
        ("check", "check the exercises of chapter N; those you do not have yet are put there first"),
        ("hint", "a hint for the exercises of chapter N that you have not solved"),
        ("solution", "print the solutions of chapter N"),
    ):
        parser.add_argument(f"--{name}", metavar="N", help=text)
    parser.add_argument("--folder", metavar="PATH", help=f"of your exercises (default: ./{_FOLDER})")


def run(args: argparse.Namespace) -> int:
    """Do the one thing that was asked for."""
    asked = [name for name in ("chapter", "check", "hint", "solution") if getattr(args, name) is not None]
    if len(asked) > 1:
        raise CommandError("give one of CHAPTER, --check, --hint and --solution")
    if args.fast and asked != ["chapter"]:
        raise CommandError("--fast goes with a chapter: tinycb learn 3 --fast")
    if args.folder is not None and asked != ["check"]:
        raise CommandError("--folder goes with --check")
    if not asked:
        return _list()
    chapter = _find(getattr(args, asked[0]))
    if asked == ["chapter"]:
        return _run(chapter, args.fast)
    if not chapter.exercises:
        raise CommandError(f"chapter {chapter.number} has no exercises")
    if asked == ["check"]:
        return _check(chapter, Path(args.folder or _FOLDER).expanduser())
    return _hint(chapter) if asked == ["hint"] else _solution(chapter)


def _find(wanted: str) -> ChapterFile:
    from tinycb.learn.files import find_chapter

    try:
        return find_chapter(wanted)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None


def _list() -> int:
    from rich import box
    from rich.table import Table

    from tinycb.commands.terminal import console
    from tinycb.learn.files import chapters
    from tinycb.learn.progress import Progress

    try:
        known, progress = chapters(), Progress.load()
    except OSError as error:
        raise CommandError(one_line(error)) from None
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", justify="right")
    for title in ("chapter", "run", "exercises"):
        table.add_column(title)
    for chapter in known:
        names = [exercise.name for exercise in chapter.exercises]
        passed = sum(name in progress.passed for name in names)
        ran = "yes" if chapter.number in progress.ran else ""
        table.add_row(str(chapter.number), chapter.title, ran, f"{passed} of {len(names)}" if names else "")
    out = console(sys.stdout)
    out.print(table)
    todo = next((c.number for c in known if c.number not in progress.ran), None)
    if todo is not None:
        print(f"\nnext: tinycb learn {todo}")
    return EXIT_OK


def _run(chapter: ChapterFile, fast: bool) -> int:
    from tinycb.learn.progress import Progress
    from tinycb.learn.runner import run_chapter

    fast = fast or os.environ.get("TINYCB_LEARN_FAST", "") not in ("", "0")
    run_chapter(chapter, fast)
    Progress.load().note_run(chapter.number)
    return EXIT_OK


def _check(chapter: ChapterFile, folder: Path) -> int:
    from tinycb.learn.checking import check_file, place
    from tinycb.learn.progress import Progress

    code = EXIT_OK
    for exercise in chapter.exercises:
        try:
            path, is_new = place(exercise, folder)
        except OSError as error:
            raise CommandError(f"cannot put an exercise into {folder}: {error.strerror}") from None
        if is_new:
            print(f"{exercise.name}: it is in {path}; fill in the blank, then give this command again")
            code = max(code, EXIT_FAILED)
            continue
        verdict = check_file(exercise, path)
        print(verdict.line, flush=True)
        if verdict.kind == "passed":
            Progress.load().note_passed(exercise.name)
        else:
            code = max(code, EXIT_BAD_INPUT if verdict.kind == "broken" else EXIT_FAILED)
    return code


def _hint(chapter: ChapterFile) -> int:
    from tinycb.learn.check_process import load_file
    from tinycb.learn.progress import Progress

    progress = Progress.load()
    todo: list[ExerciseFile] = [e for e in chapter.exercises if e.name not in progress.passed]
    if not todo:
        print(f"you have solved all exercises of chapter {chapter.number}")
    for exercise in todo:
        hints = load_file(exercise.check, "check").HINTS
        number = progress.next_hint(exercise.name, len(hints))
        print(f"{exercise.name}, hint {number + 1} of {len(hints)}: {hints[number]}")
    return EXIT_OK


def _solution(chapter: ChapterFile) -> int:
    from rich.syntax import Syntax

    from tinycb.commands.terminal import console, is_interactive

    for exercise in chapter.exercises:
        text = exercise.solution.read_text("utf-8").rstrip()
        if is_interactive(sys.stdout):
            console(sys.stdout).print(Syntax(text, "python", theme="ansi_dark", background_color="default"))
        else:
            print(text)
    return EXIT_OK
