"""The command `tinycb`: finds the command's module, runs it, and turns whatever goes wrong into one line.

    exit code   0  done
                1  it ran, and the answer is no: a replay differs, something needed is missing, a step failed
                2  bad input, which the line names; what was good has been served
              130  Ctrl-C

Imports nothing heavy: `tinycb --help` is a table of names. The commands are in `tinycb.commands`.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, TextIO

from tinycb import __version__
from tinycb.commands import COMMANDS
from tinycb.commands.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    one_line,
)

__all__ = ["main"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
EXIT_BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. argv: without the program's name; default: sys.argv."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for missing in ("stdout", "stderr"):  # closed by the caller, as in `tinycb … >&-`
        if getattr(sys, missing) is None:
            setattr(sys, missing, open(os.devnull, "w"))  # noqa: SIM115 as long as the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a model's text may hold what the terminal's encoding lacks
    with _Interrupts() as interrupts, _stderr_at_will():
        name = f"tinycb {arguments[0]}" if arguments and arguments[0] in COMMANDS else "tinycb"
        try:
            return _dispatch(arguments)
        except CommandError as error:
            _say(f"{name}: {one_line(error)}")
            return error.code
        except BrokenPipeError:
            _give_up(sys.stdout)
            return EXIT_BROKEN_PIPE
        except (Exception, KeyboardInterrupt) as error:
            if interrupts.pressed or isinstance(error, KeyboardInterrupt):
                _say(f"{name}: interrupted")
                return EXIT_INTERRUPTED
            if isinstance(error, OSError) and error.filename is None and error.errno in _NO_ROOM:
                _say(f"{name}: cannot write the output: {error.strerror}")
                _give_up(sys.stdout)
                return EXIT_BAD_INPUT
            if os.environ.get("TINYCB_TRACEBACK"):
                raise
            kind = type(error).__name__
            _say(f"{name}: unexpected {kind}: {one_line(error)} (TINYCB_TRACEBACK=1 shows where)")
            return EXIT_FAILED


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return EXIT_OK
    if arguments[0] == "--version":
        print(f"tinycb {__version__}")
        return EXIT_OK
    if arguments[0] not in COMMANDS:
        raise CommandError(_unknown(arguments[0]))
    return _run(arguments[0], arguments[1:])


def _run(command: str, arguments: Sequence[str]) -> int:
    from tinycb.commands.flags import OneLineParser

    module = importlib.import_module(f"tinycb.commands.{command}")
    parser = OneLineParser(prog=f"tinycb {command}", description=module.__doc__, epilog=module.EXAMPLES)
    module.add_arguments(parser)
    try:
        code = module.run(parser.parse(arguments))
        sys.stdout.flush()
    except SystemExit as exit_:  # --help
        sys.stdout.flush()
        return int(exit_.code or 0)
    return int(code)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "tinycb: continuous batching for LLM inference, step by step, on a real Llama.",
        "",
        "usage: tinycb COMMAND …        tinycb COMMAND --help says more",
        "",
        *(f"  {name:<{width}}   {summary}" for name, summary in COMMANDS.items()),
        "",
        "examples:",
        '  tinycb run "The capital of France is"',
        "  tinycb run --compare --chat --prompts prompts.txt",
        '  tinycb run --trace run.jsonl "Once upon a time" && tinycb replay run.jsonl',
        "  tinycb doctor",
        "",
        "  --version   print the version        -h, --help   print this",
    ]
    return "\n".join(lines)


def _unknown(command: str) -> str:
    if command.startswith("-"):
        return f"there is no {command}; tinycb --help lists what there is"
    near = difflib.get_close_matches(command, COMMANDS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
    return f"there is no command {command!r}; {hint}"


def _give_up(stream: TextIO) -> None:
    """Python flushes a stream once more at exit; nobody reads it, or it has no room."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)


class _AtWill:
    """A stream that may be full or closed: what is said there is worth no answer."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._or_nowhere():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._or_nowhere():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _or_nowhere(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            _give_up(self._stream)


@contextlib.contextmanager
def _stderr_at_will() -> Iterator[None]:
    before = sys.stderr
    sys.stderr = _AtWill(before)
    try:
        yield
    finally:
        sys.stderr = before


class _Interrupts:
    """Remembers that Ctrl-C was pressed, whatever a library makes of it, and prints no traceback."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None
        self._hook = sys.unraisablehook

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
            sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            sys.unraisablehook = self._hook

    def _press(self, signum: int, frame: FrameType | None) -> None:
        self.pressed = True
        raise KeyboardInterrupt

    def _unraisable(self, unraisable: Any) -> None:
        if (
            unraisable.exc_type is not KeyboardInterrupt
        ):  # from inside a callback, where it can only be printed
            self._hook(unraisable)
