"""Look for inputs that break your kernel or scheduler: tinycb's own theorems, on your code."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import EXIT_FAILED, EXIT_OK, CommandError

if TYPE_CHECKING:
    from tinycb.proofs.replay import Found
    from tinycb.proofs.theorem import Scope, Theorem, Verdict
    from tinycb.proofs.worker import Worker

__all__ = ["EXAMPLES", "add_arguments", "run"]

FOLDER = Path("tinycb-failures")
SLOW = 0.25  # seconds an example: from there on, examples are made smaller
DTYPES = {
    "float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float16": "float16", "fp16": "float16", "half": "float16",
}  # fmt: skip

EXAMPLES = """\
how a subject is called, with tensors as in tinycb_kernels and a float for scale:
  mask       f(q, k, v, mask, scale)
  varlen     f(q, k, v, cu_seqlens_q, cu_seqlens_k, scale)
  paged      f(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale)
  write_kv   f(k, v, k_cache, v_cache, slot_mapping)
  scheduler  a Scheduler class, as for EngineConfig(batching=…), or the name of a policy
and also: causal_mask f(cu_seqlens_q, cu_seqlens_k); chunked, a Scheduler with a token budget;
engine f(config, trace=None), which makes an Engine

examples:
  tinycb check paged tinycb_kernels:paged_attention
  tinycb check varlen my_kernels.py:flash --dtype float32,bfloat16 --heads 8:2,32:8 --gpu
  tinycb check write_kv my_kernels:write --only minus_one_slots_are_skipped --examples 500 --seconds 300
  tinycb check --replay tinycb-failures/paged-memory_of_nobody_is_never_read.json
  tinycb check --planted

exit code: 0 all theorems hold, 1 one fails, 2 nothing could be run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb check`."""
    parser.add_argument("kind", nargs="?", metavar="KIND", help="mask, varlen, paged, write_kv, scheduler, …")
    parser.add_argument("subject", nargs="?", metavar="SUBJECT", help="module:name or file.py:name")
    parser.add_argument("--examples", type=int, metavar="N", help="of each theorem; default: its own number")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="in all (default: 60)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the examples; default: always the same")
    parser.add_argument("--dtype", default="float32", metavar="TYPE", help="or several: float32,bfloat16")
    parser.add_argument("--heads", metavar="H:KH", help="query heads and KV heads, such as 8:2,4:4")
    parser.add_argument("--only", metavar="THEOREM", action="append", help="this theorem; may be repeated")
    parser.add_argument("--exact", action="store_true", help="ask for equal bits, as our CPU loops give")
    parser.add_argument("--gpu", action="store_true", help="tensors on the GPU, Triton compiled")
    parser.add_argument("--replay", metavar="FILE", help="try a counterexample again, and nothing else")
    parser.add_argument(
        "--planted", action="store_true", help="the faults planted in tinycb, and who finds them"
    )


def run(args: argparse.Namespace) -> int:
    """Check a subject, or replay a counterexample."""
    from tinycb.proofs.subjects import CannotLoad

    if args.planted:
        from tinycb.commands import check_planted

        if args.kind or args.subject or args.replay:
            raise CommandError("--planted tries tinycb's own faults; leave out the rest")
        return check_planted.run()
    if args.replay and (args.kind or args.subject):
        raise CommandError("--replay FILE names its own subject; leave out the other one")
    if not args.replay and not (args.kind and args.subject):
        raise CommandError("needs a kind and a subject, such as: tinycb check paged my_kernels:paged")
    try:
        return _replay(Path(args.replay)) if args.replay else _check(args)
    except CannotLoad as error:
        raise CommandError(str(error)) from None


def _check(args: argparse.Namespace) -> int:
    from tinycb.proofs.worker import Worker

    theorems, scope = _theorems(args), _scope(args)
    screen = _Screen()
    with Worker(args.subject, args.kind, exact=args.exact, gpu=args.gpu) as worker:
        with screen.progress(f"importing {args.subject}"):
            worker.start()
        until, failed, untried = time.monotonic() + args.seconds, 0, 0
        screen.title(args, scope, theorems)
        for index, theorem in enumerate(theorems):
            left = until - time.monotonic()
            if left <= 0:
                screen.untried(theorem, "out of time: give it more --seconds")
                untried += 1
                continue
            verdict = _search(worker, screen, theorem, scope, left / (len(theorems) - index), args)
            if verdict.failure is not None:
                failed += 1
                screen.fails(verdict, *_record(worker, args, verdict))
            elif not verdict.examples:
                untried += 1
                screen.untried(theorem, verdict.untried or "out of time: give it more --seconds")
            else:
                screen.holds(verdict, args.examples or theorem.budget)
            if verdict.examples and verdict.seconds / verdict.examples > SLOW and not args.gpu:
                scope = replace(scope, cost=1)
    screen.total(len(theorems) - failed - untried, failed, untried)
    return EXIT_FAILED if failed else EXIT_OK if untried < len(theorems) else 2


def _search(
    worker: Worker, screen: _Screen, theorem: Theorem, scope: Scope, seconds: float, args: argparse.Namespace
) -> Verdict:
    """The search is here, the subject is in the worker."""
    remote = replace(theorem, check=lambda _, example: worker.check(theorem.name, example))
    with screen.progress(theorem.name) as tell:

        def on_example(count: int) -> None:
            tell(f"{theorem.name}: example {count}")

        return remote.verdict(
            None, scope, max_examples=args.examples, seed=args.seed, seconds=seconds, on_example=on_example
        )


def _record(worker: Worker, args: argparse.Namespace, verdict: Verdict) -> tuple[str, str, list[Path]]:
    """A failure's words and picture, from a last run, and the files that it was written to."""
    from tinycb.proofs.picture import describe
    from tinycb.proofs.replay import Found, write
    from tinycb.proofs.theorem import CannotTry, Counterexample

    name, words, picture = verdict.theorem.name, str(verdict.failure), ""
    FOLDER.mkdir(exist_ok=True)
    trace = FOLDER / f"{args.kind}-{name}.jsonl" if args.kind in ("scheduler", "chunked", "engine") else None
    try:
        worker.check(name, verdict.example, picture=True, trace=str(trace) if trace else None)
    except Counterexample as again:
        words, picture = again.words, again.picture
    except CannotTry:
        pass
    found = Found(args.kind, args.subject, name, verdict.example, args.exact, args.gpu, words)
    picture = picture or describe(verdict.example)
    files = list(write(found, FOLDER))
    if trace and trace.exists():
        files.append(trace)
    return words, picture, files


def _replay(path: Path) -> int:
    from tinycb.proofs.registry import find_theorem
    from tinycb.proofs.replay import read
    from tinycb.proofs.theorem import CannotTry, Counterexample
    from tinycb.proofs.worker import Worker

    try:
        found: Found = read(path)
        theorem = find_theorem(found.kind, found.theorem, exact=found.exact)
    except ValueError as error:
        raise CommandError(str(error)) from None
    screen = _Screen()
    with Worker(found.subject, found.kind, exact=found.exact, gpu=found.gpu) as worker:
        with screen.progress(f"importing {found.subject}"):
            worker.start()
        try:
            worker.check(found.theorem, found.example, picture=True)
        except Counterexample as error:
            screen.line("fails", theorem.name, f"still, of {found.subject}")
            screen.explain(theorem.statement, error.words, error.picture)
            return EXIT_FAILED
        except CannotTry as error:
            raise CommandError(str(error)) from None
    screen.line("holds", theorem.name, f"now, of {found.subject}, on this example")
    return EXIT_OK


def _theorems(args: argparse.Namespace) -> list[Theorem]:
    from tinycb.proofs.registry import KINDS, find_theorem, theorems_about

    if args.kind not in KINDS:
        raise CommandError(f"there are no theorems about {args.kind!r}; there are about {', '.join(KINDS)}")
    for flag, value in (("--examples", args.examples), ("--seconds", args.seconds)):
        if value is not None and not value > 0:
            raise CommandError(f"{flag} must be more than 0, not {value}")
    if not args.only:
        return list(theorems_about(args.kind, exact=args.exact))
    try:
        return [find_theorem(args.kind, name, exact=args.exact) for name in args.only]
    except ValueError as error:
        raise CommandError(str(error)) from None


def _scope(args: argparse.Namespace) -> Scope:
    from tinycb.proofs.theorem import Scope

    dtypes = []
    for name in args.dtype.split(","):
        if name not in DTYPES:
            raise CommandError(f"--dtype must be among float32, bfloat16 and float16, not {name!r}")
        dtypes.append(DTYPES[name])
    scope = Scope(tuple(dtypes), device="cuda" if args.gpu else "cpu", cost=3 if args.gpu else 2)
    if not args.heads:
        return scope
    heads = []
    for pair in args.heads.split(","):
        query, _, kv = pair.partition(":")
        numbers = query.isdecimal() and kv.isdecimal()
        if not (numbers and int(query) and int(kv) and int(query) % int(kv) == 0):
            raise CommandError(f"--heads must be query heads:KV heads that divide them, as 8:2, not {pair!r}")
        heads.append((int(query), int(kv)))
    return replace(scope, heads=tuple(heads))


class _Screen:
    """One line for each theorem on stdout, and below a failure what happened; progress on stderr."""

    def __init__(self) -> None:
        from tinycb.commands.terminal import console, glyphs_for
        from tinycb.view.signs import ASCII

        self._out = console(sys.stdout)
        self._width = 0  # of the theorems' names
        plain = glyphs_for(sys.stdout) is ASCII
        self._signs = {"holds": "+", "fails": "x", "untried": "-"} if plain else {
            "holds": "✓", "fails": "✗", "untried": "–"
        }  # fmt: skip

    def progress(self, message: str) -> Any:
        """On a terminal a spinner, and a function to change its message; elsewhere the lines are enough."""
        from tinycb.commands.terminal import is_interactive, progress

        return progress(message) if is_interactive(sys.stderr) else nullcontext(lambda message: None)

    def title(self, args: argparse.Namespace, scope: Scope, theorems: list[Theorem]) -> None:
        count, self._width = len(theorems), max(len(theorem.name) for theorem in theorems)
        attention = args.kind not in ("scheduler", "chunked", "engine")
        of = f", {' '.join(scope.dtypes)}, {scope.device}" if attention else ""
        self._print(f"{count} theorem{'s' if count != 1 else ''} about {args.kind}, on {args.subject}{of}")

    def line(self, outcome: str, name: str, note: str) -> None:
        style = {"holds": "green", "fails": "bold red", "untried": "yellow"}[outcome]
        self._print(f"{self._signs[outcome]} {outcome:<7}  {name:<{self._width}} {note}".rstrip(), style)

    def holds(self, verdict: Verdict, wanted: int) -> None:
        tried = _examples(verdict.examples)
        if verdict.examples < wanted:
            tried = f"{verdict.examples} of {_examples(wanted)}"  # the time was up
        self.line("holds", verdict.theorem.name, f"{tried}, {verdict.seconds:.1f} s")

    def untried(self, theorem: Theorem, why: str) -> None:
        self.line("untried", theorem.name, why)

    def fails(self, verdict: Verdict, words: str, picture: str, files: list[Path]) -> None:
        note = f"at {_examples(verdict.needed or 0)}, {verdict.seconds:.1f} s"
        self.line("fails", verdict.theorem.name, note)
        self.explain(verdict.theorem.statement, words, picture)
        self._print(f"  replay    tinycb check --replay {files[0]}")
        self._print(f"  as test   pytest {files[1]}")
        for trace in files[2:]:
            self._print(f"  as trace  tinycb replay {trace}")

    def explain(self, statement: str, words: str, picture: str) -> None:
        """What should be, what was, and the picture of it."""
        self._print(f"  should    {statement}", wrap=12)
        self._print(f"  was       {words}", wrap=12)
        for row in picture.splitlines():
            self._print(f"  | {row}")

    def total(self, holds: int, failed: int, untried: int) -> None:
        parts = [f"{holds} hold{'s' * (holds == 1)}", f"{failed} fail{'s' * (failed == 1)}"]
        self._print(", ".join(parts + [f"{untried} not tried"] * bool(untried)))

    def _print(self, text: str, style: str = "", wrap: int = 0) -> None:
        import textwrap

        from rich.text import Text

        from tinycb.view.signs import printable

        if wrap:
            text = textwrap.fill(text, 80, subsequent_indent=" " * wrap, break_long_words=False)
        self._out.print(Text(printable(text), style=style), soft_wrap=True)


def _examples(count: int) -> str:
    return f"{count} example{'s' if count != 1 else ''}"
