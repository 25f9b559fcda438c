"""Runs a chapter in a terminal: prints the prose of its cells, and runs the code between.

A notebook does the same with the file itself; there `tinycb.learn.chapter` only gives the toolkit.
"""

from __future__ import annotations

import os
import sys
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager

from tinycb.commands.errors import EXIT_FAILED, CommandError, one_line
from tinycb.learn.cells import read_cells
from tinycb.learn.files import ChapterFile
from tinycb.learn.toolkit import Toolkit

__all__ = ["interpret_triton_without_gpu", "run_chapter", "running"]

_running: list[Toolkit] = []


def running() -> Toolkit | None:
    """The toolkit of the chapter that is being run here, if any."""
    return _running[-1] if _running else None


def run_chapter(chapter: ChapterFile, fast: bool) -> Toolkit:
    """Print and run all cells of a chapter, in one namespace; the toolkit has notes of what it did.

    Raises CommandError, naming file and line, if a cell fails.
    """
    try:
        cells = read_cells(chapter.path)
    except ValueError as error:
        raise CommandError(one_line(error)) from None
    interpret_triton_without_gpu()
    toolkit = Toolkit(chapter, fast)
    with _main_module(str(chapter.path)) as namespace:
        _running.append(toolkit)
        try:
            for number, cell in enumerate(cells):
                if cell.kind == "markdown":
                    toolkit.screen.prose(cell.text)
                    continue
                if cell.is_shown and number > 0 and not _only_begins(cell.text):
                    toolkit.screen.code(cell.text)
                code = "\n" * (cell.line - 1) + cell.text  # so that a traceback has the file's own lines
                try:
                    exec(compile(code, str(chapter.path), "exec"), namespace)
                except CommandError:
                    raise
                except Exception as error:
                    if os.environ.get("TINYCB_TRACEBACK"):
                        raise
                    raise CommandError(_where(error, chapter, cell.line), EXIT_FAILED) from error
        finally:
            _running.pop()
    return toolkit


def _only_begins(code: str) -> bool:
    """Whether a cell only fetches the toolkit, which tells a reader nothing."""
    lines = [line for line in code.splitlines() if line.strip()]
    return all(line.startswith(("from ", "import ")) or "chapter(" in line for line in lines)


def _where(error: Exception, chapter: ChapterFile, line: int) -> str:
    """One line that says which line of the chapter failed."""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(chapter.path):
            line = frame.lineno or line
    if isinstance(error, SyntaxError) and error.lineno:
        line = error.lineno
    return f"{chapter.path.name}:{line}: {type(error).__name__}: {one_line(error)}"


@contextmanager
def _main_module(path: str) -> Iterator[dict[str, object]]:
    """A `__main__` of the chapter's own, without a file: spawned processes must not run the chapter again."""
    module, before = types.ModuleType("__main__"), sys.modules["__main__"]
    namespace = module.__dict__
    sys.modules["__main__"] = module
    namespace["__chapter__"] = path
    try:
        yield namespace
    finally:
        sys.modules["__main__"] = before


def interpret_triton_without_gpu() -> None:
    """Triton decides when it is imported whether it interprets; chapters may use its kernels."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
