"""`tinycb run --compare`: the same prompts one at a time, static, continuous and chunked, on one model.

Fair: the weights are shared, every policy gets a fresh cache and a warm-up of its own before its clock runs,
and a request that draws at random draws from the same seed each time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from tinycb.commands.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from tinycb.commands.loading import make_engine, warm_up
from tinycb.commands.prompts import PromptSpec
from tinycb.commands.report import print_answers, write_svg
from tinycb.commands.run import as_json, complain
from tinycb.commands.serving import Served, Stopwatch, serve
from tinycb.commands.terminal import Watcher, console
from tinycb.commands.watching import watcher_for
from tinycb.config import EngineConfig
from tinycb.tracing.records import StepRecord
from tinycb.view.comparison import PolicyResult, comparison_table, findings, first_difference

if TYPE_CHECKING:
    from tinycb.model.checkpoint import LoadedModel

__all__ = ["POLICIES", "compare"]

POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("one at a time", {"batching": "continuous", "max_num_seqs": 1}),
    ("static", {"batching": "static"}),
    ("continuous", {"batching": "continuous"}),
    ("chunked", {"batching": "chunked"}),
)


class _Run(NamedTuple):
    served: Served
    watcher: Watcher
    result: PolicyResult


class _Looking:
    """Counts what the table needs beside the totals, and passes every record on."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.most_rows = 0

    def observe(self, record: StepRecord) -> None:
        self.most_rows = max(self.most_rows, sum(record.scheduled.values()) + record.num_padded)
        self.watcher.observe(record)


def compare(
    args: argparse.Namespace, config: EngineConfig, loaded: LoadedModel, specs: Sequence[PromptSpec]
) -> int:
    """Run all policies, print the table, and return the exit code."""
    specs = [_seeded(spec, index) for index, spec in enumerate(specs)]
    runs: list[_Run] = []
    problems: list[str] = []
    interrupted = False
    try:
        for number, (name, changes) in enumerate(POLICIES, start=1):
            title = f"{number}/{len(POLICIES)} {name}"
            if not args.quiet and not sys.stderr.isatty():
                print(f"{title}:", file=sys.stderr, flush=True)
            run = _run_policy(args, replace(config, **changes), loaded, specs, name, title)
            problems += [problem for problem in run.served.problems if problem not in problems]
            if run.served.interrupted or run.served.failure is not None or not run.served.outputs:
                interrupted, last = run.served.interrupted, run.served
                break
            runs.append(run)
            last = run.served
            if args.json:
                print(json.dumps(_policy_json(run), ensure_ascii=False, allow_nan=False))
    except KeyboardInterrupt:  # between two runs, or while one is warming up
        interrupted, last = True, Served()
    if runs and not args.json:
        _print(args, runs, specs)
    if runs and args.svg is not None:
        write_svg(args.svg, runs[-1].watcher)
    if interrupted:
        sys.stdout.flush()
        done = f"{len(runs)} of {len(POLICIES)} ways of batching were finished"
        print(f"tinycb run: interrupted: {done}", file=sys.stderr, flush=True)
        return EXIT_INTERRUPTED
    last.problems = problems
    last.trace_error = next((run.served.trace_error for run in runs if run.served.trace_error), None)
    different = bool(runs) and first_difference([run.result for run in runs]) is not None
    return complain(last) or (EXIT_FAILED if different else EXIT_OK)


def _run_policy(
    args: argparse.Namespace,
    config: EngineConfig,
    loaded: LoadedModel,
    specs: Sequence[PromptSpec],
    name: str,
    title: str,
) -> _Run:
    stopwatch = Stopwatch()
    trace = None if args.trace is None else _trace_path(args.trace, name)
    warm_up(loaded, config)
    engine = make_engine(loaded, config, trace=trace, clock=stopwatch)
    with watcher_for(engine, [spec.request_id for spec in specs], stopwatch, args, title) as watcher:
        looking = _Looking(watcher)
        served = serve(engine, specs, looking, chat=args.chat)
    gaps = [gap for output in served.outputs if output.metrics is not None for gap in output.metrics.itl]
    result = PolicyResult(
        name=name,
        totals=engine.metrics.totals,
        token_ids={output.request_id: output.token_ids for output in served.outputs},
        most_rows=looking.most_rows,
        longest_gap=max(gaps, default=None),
    )
    return _Run(served, watcher, result)


def _print(args: argparse.Namespace, runs: Sequence[_Run], specs: Sequence[PromptSpec]) -> None:
    out, results = console(sys.stdout), [run.result for run in runs]
    if not args.quiet:
        print_answers(runs[-1].served, specs)
    out.print(comparison_table(results))
    out.print()
    if len(results) > 1:
        difference = first_difference(results)
        count = len(results[0].token_ids)
        same = f"All {len(results)} runs gave the same tokens for all {count} requests."
        out.print(Text(same if difference is None else f"The runs are not the same: {difference}."))
        for sentence in findings(results):
            out.print(Text(sentence))


def _policy_json(run: _Run) -> dict[str, Any]:
    result = run.result
    return {
        "policy": result.name,
        "mean_rows": result.mean_rows,
        "most_rows": result.most_rows,
        "longest_gap": result.longest_gap,
        "totals": asdict(result.totals) | {"tokens_per_second": result.speed},
        "requests": [as_json(output) for output in run.served.outputs],
    }


def _seeded(spec: PromptSpec, index: int) -> PromptSpec:
    """With a seed of its own, so that every policy draws the same numbers for it."""
    if spec.params.seed is not None or spec.params.temperature == 0:
        return spec
    return replace(spec, params=replace(spec.params, seed=index))


def _trace_path(path: str, policy: str) -> Path:
    """`run.jsonl` becomes `run.static.jsonl`."""
    whole = Path(path)
    return whole.with_name(f"{whole.stem}.{policy.replace(' ', '-')}{whole.suffix}")
