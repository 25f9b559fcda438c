"""Write a trace in another program's format: Perfetto's, for its timeline in the browser."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tinycb.commands.errors import EXIT_BAD_INPUT, EXIT_OK, CommandError, one_line

if TYPE_CHECKING:
    from tinycb.tracing import TraceReader

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb run --trace run.jsonl --prompts prompts.txt
  tinycb export run.jsonl --perfetto run.pftrace      then open it in ui.perfetto.dev, or any Perfetto UI
  tinycb export run.jsonl --perfetto run.pftrace --force

A track a request, one for the engine, counters for blocks, budget and queue; a click on a slice shows the
step's numbers and reasons.
exit code: 0, or 2 if the trace cannot be read or the file cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tinycb export`."""
    parser.add_argument("trace", metavar="TRACE", help="a trace, as of tinycb run --trace")
    parser.add_argument("--perfetto", metavar="FILE", help="the file to write, in Perfetto's native format")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def run(args: argparse.Namespace) -> int:
    """Write the file, and say what is in it."""
    if args.perfetto is None:
        raise CommandError("say what to write: --perfetto run.pftrace")
    if find_spec("perfetto") is None:
        raise CommandError("--perfetto needs PyPI's perfetto: pip install 'tinycb[export]'")
    target = Path(args.perfetto)
    _check_target(target, Path(args.trace), args.force)
    from tinycb.tracing import TraceReader

    try:
        with TraceReader(args.trace) as reader:
            return _export(reader, target)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None


def _check_target(target: Path, trace: Path, force: bool) -> None:
    problem = None
    if target.is_dir():
        problem = "it is a folder; name a file"
    elif not target.parent.is_dir():
        problem = f"there is no folder {target.parent}"
    elif target.exists() and trace.exists() and target.samefile(trace):
        problem = "it is the trace itself; name another file"
    elif target.exists() and not target.is_file():
        problem = "it is no regular file; name another"
    elif target.exists() and not force:
        problem = "it is there already; --force writes over it"
    elif not os.access(target.parent, os.W_OK):
        problem = "permission denied"
    if problem is not None:
        raise CommandError(f"cannot write --perfetto {target}: {problem}")


def _export(reader: TraceReader, target: Path) -> int:
    from tinycb.commands.terminal import progress
    from tinycb.export.perfetto import PerfettoExport
    from tinycb.tracing import TraceError

    if not len(reader):
        raise CommandError(f"{reader.path} has no steps: there is nothing to export")
    steps, broken = 0, None
    with progress(f"exporting {len(reader)} steps") as say, _written_whole(target) as stream:
        export = PerfettoExport(stream, reader.header)
        try:
            for record in reader:
                export.observe(record)
                steps += 1
                if steps % 1000 == 0:
                    say(f"exporting step {steps} of {len(reader)}")
        except TraceError as error:
            if not steps:
                raise
            broken = one_line(error)
    print(
        f"{target}: {_count(steps, 'step')}, {_count(export.num_requests, 'request')}, "
        f"{_count(export.num_events, 'event')}, {target.stat().st_size / 1e6:.1f} MB"
    )
    if broken is not None:
        print(f"tinycb export: {broken}; the steps before it are there", file=sys.stderr)
        return EXIT_BAD_INPUT
    if reader.truncated:
        end = f"the trace ends in the middle of a line; its {steps} whole steps are there"
        print(f"tinycb export: {end}", file=sys.stderr)
    return EXIT_OK


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@contextmanager
def _written_whole(target: Path) -> Iterator[IO[bytes]]:
    """A stream to a file that takes the target's place at the end; on an error, nothing is left of it."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise CommandError(f"cannot write --perfetto {target}: {error.strerror or error}") from None
    try:
        with open(handle, "wb") as stream:
            yield stream
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, _trace_error()):
            raise CommandError(f"cannot write --perfetto {target}: {error.strerror or error}") from None
        raise


def _trace_error() -> type[OSError]:
    from tinycb.tracing import TraceError

    return TraceError


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
