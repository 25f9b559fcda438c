"""Tokens a second of tinycb and its peers, serving the same work in turn: `make bench`.

Each system serves in a process of its own, one after the other, for several rounds; a figure is the median
of the rounds, a ratio that of the rounds' own ratios to tinycb's default. Tokens are compared with
transformers'. What comes of it is added to docs/speed.md, its figure and its JSON, which keep what this run
does not measure. Run it on a quiet machine: a busy neighbour slows every parallel region; the page marks it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.speed.agreement import Agreement, compare, find_ties, told_of
from benchmarks.speed.machine import machine_name
from benchmarks.speed.page import write_page
from benchmarks.speed.results import Entry, Memory, Results
from benchmarks.speed.running import ServeError, serve
from benchmarks.speed.systems import DEFAULT, QUICK, REFERENCES, ROOT, SYSTEMS, System, vllm_python
from benchmarks.speed.workloads import WORKLOADS, Work
from tinycb.commands.neighbours import busy_neighbours

DTYPES = ("float32", "bfloat16")
Tokens = list[list[int]]
EXAMPLES = """\
examples (after `python -m benchmarks.throughput`, or in make's BENCH_ARGS="…"):
  (nothing)                                        the default and its nearest peers, fp32: 20 to 25 minutes
  --workloads mixed16 --rounds 1                   whether everything works: a minute or two
  --systems tinycb-static vllm-compiled --dtypes bfloat16
  --all                                            every system, both dtypes: hours
  --redraw                                         the page once more from its JSON, without measuring
"""


@dataclass(slots=True)
class Rounds:
    """What one system did on one workload in one dtype, round by round."""

    speeds: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)
    busy: float = 0.0
    memory: Memory | None = None
    agreement: Agreement | None = None


class Progress:
    """Lines with the time gone by and about how much is left."""

    def __init__(self, expected: float) -> None:
        self._start = time.monotonic()
        self._expected = expected  # seconds, by the systems' own guesses
        self._done = 0.0
        print(f"this takes about {_minutes(expected)}; guesses get better as it goes on", flush=True)

    def advance(self, guessed: float) -> None:
        self._done += guessed

    def say(self, what: str) -> None:
        gone = time.monotonic() - self._start
        pace = gone / self._done if self._done > 0.05 * self._expected else 1.0
        left = max(0.0, self._expected - self._done) * pace
        print(f"[{gone / 60:5.1f} min, about {_minutes(left)} left] {what}", flush=True)


class Bench:
    """A run of the benchmark: who serves what, and what is known so far."""

    def __init__(self, arguments: argparse.Namespace, systems: Sequence[System], model: Path) -> None:
        self.systems, self.model = systems, model
        vocab_size = json.loads((model / "config.json").read_text())["vocab_size"]
        self.rounds, self.timeout = arguments.rounds, arguments.timeout
        self.works: dict[str, Work] = {name: WORKLOADS[name].make(vocab_size) for name in arguments.workloads}
        self.dtypes, self.slow_once = arguments.dtypes, not arguments.all and not arguments.systems
        self.folder: Path = arguments.out
        self.results = Results.continued(self.folder / "speed.json", machine_name(), arguments.model)
        self.found: dict[tuple[str, str, str], Rounds] = {}
        self.failures: list[str] = []
        self.progress = Progress(sum(self._guess(system) for _, _, system in self._plan()))

    def _plan(self) -> Iterator[tuple[str, int, System]]:
        """Dtype, round, system. In a quick run, transformers, which takes most of the time, serves once."""
        for dtype in self.dtypes:
            for number in range(self.rounds):
                for system in self.systems:
                    if number == 0 or not self.slow_once or system.family != "transformers":
                        yield dtype, number, system

    def _guess(self, system: System) -> float:
        return system.start + sum(system.guess(WORKLOADS[name]) for name in self.works)

    def run(self) -> None:
        """Serve round after round, and write the page after each."""
        before = None
        for dtype, number, system in self._plan():
            if before not in (None, (dtype, number)):
                self._write(dtype=before[0])
            before = dtype, number
            self.progress.say(f"{dtype}, round {number + 1} of {self.rounds}: {system.title}")
            self._serve(system, dtype)
        if before is not None:
            self._write(dtype=before[0])

    def _serve(self, system: System, dtype: str) -> None:
        busy = sum(neighbour.share for neighbour in busy_neighbours())
        waiting = dict(self.works)
        self.progress.advance(system.start)

        def note(name: str, result: dict[str, Any]) -> None:
            work = waiting.pop(name)
            rounds = self.found.setdefault((name, dtype, system.name), Rounds())
            rounds.speeds.append(work.output_tokens / result["seconds"])
            rounds.beside.append(self.found[name, dtype, DEFAULT].speeds[-1])
            rounds.tokens.append(result["tokens"])
            rounds.busy = max(rounds.busy, busy)
            if "peak" in result:
                rounds.memory = Memory(result["peak"], result["weights"], result["cache"])
            self.progress.advance(system.guess(WORKLOADS[name]))
            self.progress.say(f"    {name}: {rounds.speeds[-1]:.1f} tokens/s")

        try:
            versions = serve(system, self.model, dtype, self.works, note, timeout=self.timeout)
            self.results.note_versions(versions)
        except ServeError as error:
            self.failures.append(str(error))
            print(error, file=sys.stderr)
            if system.name == DEFAULT:
                raise

    def _write(self, dtype: str) -> None:
        for (name, of, system), rounds in self.found.items():
            if of == dtype and rounds.speeds:
                reference = self._reference(name, dtype)
                rounds.agreement = self._agreement(name, dtype, rounds, self.found[name, dtype, reference])
                self.results.put(
                    Entry(
                        *(name, dtype, system),
                        speeds=rounds.speeds,
                        beside=rounds.beside,
                        same=told_of(rounds.agreement, system, reference),
                        date=date.today().isoformat(),
                        busy=round(rounds.busy, 2),
                        memory=rounds.memory,
                    )
                )
        self.results.write(self.folder / "speed.json")
        write_page(self.results, self.folder)

    def _reference(self, name: str, dtype: str) -> str:
        """The first system there is whose tokens are right."""
        known = ((system, self.found.get((name, dtype, system))) for system in REFERENCES)
        return next(system for system, rounds in known if rounds is not None and rounds.tokens)

    def _agreement(self, name: str, dtype: str, rounds: Rounds, right: Rounds) -> Agreement:
        """The worst of the rounds."""
        reference = right.tokens[0]
        worst = min((compare(tokens, reference) for tokens in rounds.tokens), key=lambda found: found.share)
        before = rounds.agreement
        if before is not None and before.differing == worst.differing:
            return before
        if worst.differing and dtype == "float32":
            worst = find_ties(worst, reference, self.works[name], self.model)
        return worst

    @property
    def disagreements(self) -> list[str]:
        """In fp32: systems whose tokens are others, where the model was not undecided."""
        return [
            f"{SYSTEMS[system].title} gave other tokens on {name} in fp32: {rounds.agreement}"
            for (name, dtype, system), rounds in self.found.items()
            if dtype == "float32" and rounds.agreement is not None and not rounds.agreement.is_full
        ]


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput",
        description=(__doc__ or "").split("\n\n")[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        *("--workloads", "--workload"),
        nargs="+",
        choices=WORKLOADS,
        default=list(WORKLOADS),
        metavar="NAME",
        help=f"of {', '.join(WORKLOADS)}; default: all",
    )
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, metavar="NAME", help=f"of {', '.join(SYSTEMS)}"
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, metavar="NAME", help=" or ".join(DTYPES))
    parser.add_argument("--model", default="smollm2-135m", metavar="MODEL", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--all", action="store_true", help="every system, in fp32 and bf16")
    parser.add_argument("--timeout", type=float, default=7200, metavar="S", help="for one process")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", metavar="FOLDER", help="default: docs")
    parser.add_argument(
        "--redraw", action="store_true", help="draw the page from speed.json, and measure nothing"
    )
    return parser


def _systems(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[System]:
    """tinycb's default first: every ratio is to it. vLLM where there is one."""
    names = arguments.systems or (SYSTEMS if arguments.all else QUICK)
    chosen = [SYSTEMS[name] for name in dict.fromkeys((DEFAULT, *names))]
    if vllm_python() is None:
        if arguments.systems and any(system.family == "vllm" for system in chosen):
            parser.error("vLLM needs VLLM_PYTHON, the path of an interpreter that has it")
        print("without vLLM: VLLM_PYTHON names no interpreter that has it", flush=True)
        chosen = [system for system in chosen if system.family != "vllm"]
    return chosen


def main() -> int:
    from tinycb.model.checkpoint import ModelError, locate

    parser = _parser()
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {arguments.rounds}")
    if not arguments.out.is_dir():
        parser.error(f"--out {arguments.out} is not a folder")
    arguments.dtypes = arguments.dtypes or (DTYPES if arguments.all else DTYPES[:1])
    try:
        if arguments.redraw:
            write_page(Results.read(arguments.out / "speed.json"), arguments.out)
            return 0
        systems = _systems(parser, arguments)
        model, _ = locate(arguments.model, lambda message: print(message, flush=True))
        bench = Bench(arguments, systems, model)
    except (ModelError, ValueError) as error:
        parser.error(str(error))
    try:
        bench.run()
    except ServeError:
        return 1
    except KeyboardInterrupt:
        print("interrupted; the rounds before this one are written", file=sys.stderr)
        return 130
    for line in bench.disagreements:
        print(line, file=sys.stderr)
    print(f"wrote {arguments.out / 'speed.md'}")
    return 1 if bench.disagreements or bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
