"""A process of its own for code that nobody has proved right: it may raise, hang, crash or write anywhere.

    with Worker("my_kernels:paged", "paged") as worker:
        worker.check("agrees_with_one_request_alone", example)      raises Counterexample, in words

The search for examples stays in the parent. A process that hangs is killed, one that died is started again,
and either is one more counterexample, which Hypothesis shrinks like any other, a few tries long.

Lines of JSON go to and fro over pipes that the subject cannot reach: its standard output is the error stream,
which is kept in a file. The child's half is `worker_process.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from tinycb.proofs.encoding import encode
from tinycb.proofs.subjects import CannotLoad
from tinycb.proofs.theorem import CannotTry, Counterexample

__all__ = ["Worker"]

START_SECONDS = 120.0  # to import torch and the subject
FIRST_SECONDS = 60.0  # the first example may compile
EXAMPLE_SECONDS = 10.0
SHRINK_SECONDS = 3.0  # once one example of a theorem has hung, the next ones are given less
DEATHS = 5  # of one theorem's examples; a smaller one is not looked for after that


class Worker:
    """One subject in a child process, started when first needed and again whenever it has died."""

    def __init__(self, subject: str, kind: str, *, exact: bool = False, gpu: bool = False) -> None:
        self.subject, self.kind, self.exact, self.gpu = subject, kind, exact, gpu
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._unread = b""
        self._warm = False  # has this process returned from an example?
        self._first: float | None = None  # seconds that the very first example took
        self._deaths: dict[str, str] = {}  # of the theorem at hand: example → what happened
        self._theorem = ""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process and let it import the subject. Raises CannotLoad if that fails."""
        environment = os.environ | {"PYTHONFAULTHANDLER": "1"}
        environment.setdefault("OMP_WAIT_POLICY", "passive")
        environment.pop("TRITON_INTERPRET", None)
        if not self.gpu:
            environment["TRITON_INTERPRET"] = "1"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._unread, self._warm = b"", False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tinycb.proofs.worker_process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=environment, start_new_session=True,
        )  # fmt: skip
        answer = self._ask(
            {"subject": self.subject, "kind": self.kind, "exact": self.exact, "gpu": self.gpu}, START_SECONDS
        )
        if answer is None:
            raise CannotLoad(f"importing {self.subject}: {self._how_it_ended(START_SECONDS)}")
        if "cannot" in answer:
            self.close()
            raise CannotLoad(answer["cannot"])

    def check(self, theorem: str, example: Any, *, picture: bool = False, trace: str | None = None) -> None:
        """Try one example of a theorem, by name.

        picture: with a picture in the Counterexample. trace: where to record the run, of a scheduler's or an
        engine's theorem. Raises Counterexample, CannotTry, or CannotLoad if a new process cannot be started.
        """
        if theorem != self._theorem:
            self._theorem, self._deaths = theorem, {}
        values = encode(example)
        key = json.dumps(values, sort_keys=True)
        answer: dict[str, Any] | None = {}
        if key not in self._deaths and len(self._deaths) < DEATHS:
            if self._process is None:
                self.start()
            start, limit = time.monotonic(), self._limit()
            answer = self._ask(
                {"theorem": theorem, "example": values, "picture": picture, "trace": trace}, limit
            )
            if answer is None:
                self._deaths[key] = self._how_it_ended(limit)
            elif self._first is None:
                self._first = time.monotonic() - start
            self._warm = answer is not None
        if key in self._deaths:
            answer = {"words": self._deaths[key], "picture": ""}
        if answer and "untried" in answer:
            raise CannotTry(answer["untried"])
        if answer and "words" in answer:  # one line that raises: Hypothesis tells failures apart by it
            raise Counterexample(answer["words"], answer["picture"])

    def _limit(self) -> float:
        """Seconds for the next example. A process's first one may compile; the very first showed how long."""
        limit = SHRINK_SECONDS if self._deaths else EXAMPLE_SECONDS
        if self._warm:
            return limit
        return FIRST_SECONDS if self._first is None else limit + 2 * self._first

    def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it has started goes with it
            except OSError:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer to a question; None if the process died, or gave none in time."""
        process, until = self._process, time.monotonic() + seconds
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return None
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _how_it_ended(self, seconds: float) -> str:
        """Close the process and say what became of it."""
        assert self._process is not None
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.close()
            return f"it did not return within {seconds:.0f} s"
        said = self._last_words()
        self.close()
        if code < 0:
            return f"the process died with {signal.Signals(-code).name}{said}"
        return f"the process ended itself with exit code {code}{said}"

    def _last_words(self) -> str:
        """Where Python was when the process died, if its fault handler had time to say so."""
        if self._errors is None:
            return ""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 20_000))
        text = self._errors.read().decode(errors="replace")
        _, fatal, stack = text.rpartition("most recent call first")
        for file, line in re.findall(r'File "(.*?)", line (\d+)', stack if fatal else ""):
            if not re.search(r"[/\\](ctypes|torch|numpy|numba|triton|tinycb[/\\]proofs)[/\\]", file):
                return f" in {os.path.basename(file)}, line {line}"
        return ""
