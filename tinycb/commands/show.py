"""Print one step of a trace as plain text, the panels of `tinycb tui`, or its quiz."""

from __future__ import annotations

import argparse
import sys

from tinycb.commands.errors import EXIT_OK, CommandError, one_line

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb show run.jsonl --step 12
  tinycb show run.jsonl --step 12 --panel mask --panel batch
  tinycb show run.jsonl --step 12 --select B:5 | less
  tinycb show run.jsonl --quiz

panels: timeline, batch, why, requests, mask, blocks, budget, place
exit code: 0, or 2 if the trace cannot be read or has no such step
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tinycb show`."""
    parser.add_argument("trace", metavar="TRACE", help="a file that tinycb run --trace wrote")
    parser.add_argument("--step", metavar="N", default="0", help="the step; -1 is the last (default: 0)")
    parser.add_argument("--panel", metavar="NAME", action="append", help="only this panel; may be repeated")
    parser.add_argument(
        "--quiz", action="store_true", help="the questions of tinycb tui --quiz, and the answers below them"
    )
    parser.add_argument("--select", metavar="ID[:POSITION]", help="a request, and a token of it")
    parser.add_argument(
        "--width", metavar="N", default=None, help="columns (default: the terminal's, else 100)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the panels."""
    from tinycb.commands.terminal import console, is_interactive
    from tinycb.tracing import TraceReader
    from tinycb.tui.look import Look
    from tinycb.tui.session import Session
    from tinycb.tui.show import PANELS, Lines, step_lines

    if args.quiz and (args.panel or args.select):
        raise CommandError("--quiz prints questions, and no panel: leave out --panel and --select")
    names = args.panel or list(PANELS)
    for name in names:
        if name not in PANELS:
            raise CommandError(f"there is no panel {name!r}; there are {', '.join(PANELS)}")
    step = _integer(args.step, "--step")
    out = console(sys.stdout)
    width = out.width if args.width is None else _integer(args.width, "--width")
    if not 40 <= width <= 1000:
        raise CommandError(f"--width must be from 40 to 1000, not {width}")
    try:
        with TraceReader(args.trace) as reader:
            if not len(reader):
                raise CommandError(f"{args.trace} has no steps")
            if args.quiz:
                from tinycb.commands.tui_quiz import make_quiz, printed

                out.print("\n".join(printed(make_quiz(reader), width)), markup=False, soft_wrap=True)
                return EXIT_OK
            session = Session(reader)
            session.go(session.index_of(step))
            if args.select is not None:
                session.select(args.select)
            while not session.is_read and session.history.num_steps <= session.index + width:
                session.work(0.1)
            if reader.truncated:
                print(f"tinycb show: {session.truncation}", file=sys.stderr, flush=True)
            look = Look("dark" if is_interactive(sys.stdout) else "plain")
            out.print(Lines(step_lines(session.view(look), names, width)), soft_wrap=True, end="")
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None
    return EXIT_OK


def _integer(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"{flag} must be an integer, not {text!r}") from None
