"""Runs one chapter in a process of its own and writes down what it did.

python -m tests.learn.chapter_process CHAPTER fast|real NOTES.json
"""

import json
import sys
import time
from pathlib import Path

from tinycb.commands.errors import CommandError
from tinycb.learn.files import find_chapter
from tinycb.learn.runner import run_chapter
from tinycb.learn.steps import step_rows, steps_as_text


def main(chapter: str, mode: str, notes_path: str) -> int:
    began = time.monotonic()
    try:
        toolkit = run_chapter(find_chapter(chapter), mode == "fast")
    except CommandError as error:
        print(error, file=sys.stderr)
        return error.code
    notes = toolkit.notes
    tables = [f"{name}\n{steps_as_text(step_rows(run.records))}" for name, run in notes.runs.items()]
    known = {
        "missing": notes.missing,
        "exercises": notes.exercises,
        "said": notes.said,
        "golden": "\n".join(tables),
        "seconds": min(time.process_time(), time.monotonic() - began),  # neighbours cost the clock, not us
    }
    Path(notes_path).write_text(json.dumps(known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
