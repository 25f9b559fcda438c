"""The tutorials' toolkit: how a chapter is run, shown, questioned, checked, and written.

A chapter is `tutorials/NN_short_name.py`, in py:percent form: `# %% [markdown]` cells of prose, `# %%` cells
of code. `python tutorials/NN_….py`, `tinycb learn NN` and Jupyter (through jupytext) all run that one file.

For authors
-----------
The first code cell is

    from tinycb.learn import chapter

    here = chapter(3)

and everything else is a method of `here` (`toolkit.py` has each one's docstring):

    say(text)                      prose with computed numbers: an f-string of Markdown
    claim(holds, text)             prose that the run must bear out, or the chapter fails
    term(name, meaning)            define a term, once in the whole course; the glossary is made of these
    show_source(name, start, end)  "tinycb.module:Class.method", or from one line to another of it
    vllm(file, name, remark)       where the same thing stands in vLLM
    serve(name, prompts, max_tokens, …, **config)   real prompts on the chapter's model → Run
    script(name, {"A": (prompt, answer)}, **config) a worked example with given tokens → Run
    recorded(name, trace)          a run out of a trace file that is there already → Run
    engine(**config), model, encode, decode, config to do it by hand
    reference                      transformers' own model with the same weights
    timeline(run)  row(run, step)  steps(run)  picture(run, step)  panels(run, step, "mask", …)  answers(run)
    table(columns, rows)  bars(values, unit)  show(renderable)
    compare(run, run, measures=…)  gain(what, before, after, unit, measured=…)
    predict(question, choices) → .see(answer, because)
    exercise(name)                 shows tutorials/exercises/NN_name.py and how to check it
    finish(run, next_)             keeps the trace, says how to open it, and what to read next

A `Run` has `.records` (every StepRecord, with block tables and packed arrays), `.outputs`, `run["A"]`,
`.totals`, `.seconds`, `.config`, `.path`. A code cell is printed before its output unless its marker says
`# %% tags=["hide-input"]`. With `--fast` the same calls run on `tiny-random`.

An exercise is three files of one name: in `exercises/` (docstring: the task; a function that raises
`NotImplementedError("…")`), in `checks/` (`HINTS`, and `check(exercise)`, which calls `expect`), and in
`solutions/`; and at least two wrong answers in `tests/learn/wrong/NAME__why.py`, whose docstring is a part of
the sentence they must fail with.

Tests in `tests/learn` hold for every file that is there: what a chapter must have, golden tables of its runs,
no number typed into prose, no name that is gone.

Nothing heavy is imported here. Reading order: `cells.py`, `files.py`, `toolkit.py`, `runner.py`,
`checking.py`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tinycb.learn.expecting import Wrong, expect

if TYPE_CHECKING:
    from tinycb.learn.toolkit import Toolkit

__all__ = ["Wrong", "chapter", "expect"]


def chapter(number: int, fast: bool | None = None) -> Toolkit:
    """The toolkit of a chapter.

    Called by a chapter's file that is run as a program, it runs the whole file cell by cell, prose included,
    and exits. In a notebook it returns. fast: the tiny model; None: what TINYCB_LEARN_FAST says.
    """
    caller = sys._getframe(1).f_globals
    if caller.get("__name__") == "__main__" and "__chapter__" not in caller and caller.get("__file__"):
        from tinycb.cli import main

        sys.exit(main(["learn", caller["__file__"], *sys.argv[1:]]))

    from tinycb.learn.files import find_chapter
    from tinycb.learn.runner import interpret_triton_without_gpu, running

    toolkit = running()
    if toolkit is not None:
        if toolkit.chapter.number != number:
            raise ValueError(f"this is chapter {toolkit.chapter.number}, and its file asks for {number}")
        return toolkit
    from tinycb.learn.toolkit import Toolkit

    interpret_triton_without_gpu()
    if fast is None:
        fast = os.environ.get("TINYCB_LEARN_FAST", "") not in ("", "0")
    return Toolkit(find_chapter(str(number)), fast)
