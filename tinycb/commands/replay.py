"""Run a trace again, with its own tokens, and name the first step that differs."""

from __future__ import annotations

import argparse

from tinycb.commands.errors import EXIT_FAILED, EXIT_OK, CommandError, one_line

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb run --trace run.jsonl "Once upon a time"
  tinycb replay run.jsonl

exit code: 0 if every step is the same, 1 if one differs, 2 if the trace cannot be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tinycb replay`."""
    parser.add_argument("trace", metavar="TRACE", help="a file that tinycb run --trace wrote")


def run(args: argparse.Namespace) -> int:
    """Replay, and say what came of it."""
    from tinycb.commands.terminal import progress
    from tinycb.replay import replay
    from tinycb.tracing.reader import TraceReader

    try:
        with TraceReader(args.trace) as reader:
            steps, truncated = len(reader), reader.truncated
        with progress(f"replaying {steps} steps"):
            difference = replay(args.trace)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None
    if difference is not None:
        print(f"{args.trace}: {difference}")
        return EXIT_FAILED
    end = "; it ends in the middle of a line, which was left out" if truncated else ""
    print(f"{args.trace}: all {steps} steps are the same{end}")
    return EXIT_OK
