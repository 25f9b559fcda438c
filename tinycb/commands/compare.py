"""`tinycb run --compare`: the same prompts one at a time, static, continuous and chunked, on one model.

Fair: the weights are shared, every policy gets a fresh cache and a warm-up of its own before its clock runs,
and a request that draws at random draws from the same seed each time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tinycb.commands.errors import EXIT_FAILED
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


class _Looking:
    """Counts what the table needs beside the totals, and passes every record on."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.most_rows = 0

    def observe(self, record: StepRecord) -> None:
        self.most_rows = max(self.most_rows, sum(record.scheduled.values()) + record.num_padded)
        self.watcher.observe(record)

    def miss(self, is_unfinished: Callable[[str], bool]) -> None:
        self.watcher.miss(is_unfinished)


def compare(
    args: argparse.Namespace, config: EngineConfig, loaded: LoadedModel, specs: Sequence[PromptSpec]
) -> int:
    """Run all policies, print the table, and return the exit code."""
    specs = [_seeded(spec, index) for index, spec in enumerate(specs)]
    results: list[PolicyResult] = []
    served, watcher = Served(), None
    problems: list[str] = []
    for number, (name, changes) in enumerate(POLICIES, start=1):
        policy = replace(config, **changes)
        title = f"{name} ({number} of {len(POLICIES)})"
        if not args.quiet and not sys.stderr.isatty():
            print(f"{title}:", file=sys.stderr, flush=True)
        served, watcher, result = _run_policy(args, policy, loaded, specs, name, title)
        problems += [problem for problem in served.problems if problem not in problems]
        if served.interrupted or served.failure is not None:
            break
        if not served.outputs:
            break
        results.append(result)
        if args.json:
            print(json.dumps(_policy_json(result, served), ensure_ascii=False, allow_nan=False))
        if served.trace_error is not None:
            break
    served.problems = problems
    if results and not args.json:
        _print(args, results, served, specs)
    if args.svg is not None and watcher is not None:
        write_svg(args.svg, watcher)
    code = complain(served)
    return code or (EXIT_FAILED if results and first_difference(results) is not None else 0)


def _run_policy(
    args: argparse.Namespace,
    config: EngineConfig,
    loaded: LoadedModel,
    specs: Sequence[PromptSpec],
    name: str,
    title: str,
) -> tuple[Served, Watcher, PolicyResult]:
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
    return served, watcher, result


def _print(
    args: argparse.Namespace, results: Sequence[PolicyResult], served: Served, specs: Sequence[PromptSpec]
) -> None:
    out = console(sys.stdout)
    if not args.quiet:
        print_answers(served, specs)
    out.print(comparison_table(results))
    out.print()
    if len(results) > 1:
        difference = first_difference(results)
        count = len(results[0].token_ids)
        same = f"All {len(results)} runs gave the same tokens for all {count} requests."
        out.print(Text(same if difference is None else f"The runs are not the same: {difference}."))
        for sentence in findings(results):
            out.print(Text(sentence))


def _policy_json(result: PolicyResult, served: Served) -> dict[str, Any]:
    return {
        "policy": result.name,
        "mean_rows": result.mean_rows,
        "most_rows": result.most_rows,
        "longest_gap": result.longest_gap,
        "totals": asdict(result.totals) | {"tokens_per_second": result.speed},
        "requests": [as_json(output) for output in served.outputs],
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
