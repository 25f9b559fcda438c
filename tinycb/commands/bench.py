"""Serve a workload on the real model as its requests arrive, here or on vLLM, beside what is modelled."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    one_line,
)
from tinycb.commands.flags import add_engine_flags, engine_config
from tinycb.commands.load_flags import (
    add_load_output_flags,
    add_workload_flags,
    check_figure,
    open_workload_flags,
    service_levels,
)
from tinycb.commands.load_output import draw_figure, finish, print_tables, report_problems
from tinycb.commands.numbers import whole
from tinycb.commands.vllm_flags import add_vllm_flags, check_vllm_flags

if TYPE_CHECKING:
    from tinycb.config import EngineConfig
    from tinycb.costs.roofline import CostModel
    from tinycb.executors import ExecutorOutput, LlamaExecutor, ScheduledStep
    from tinycb.view.error_table import StepPair

__all__ = ["EXAMPLES", "add_arguments", "run", "warn_of_neighbours"]

EXAMPLES = """\
examples:
  tinycb bench azure_2023_conv_1000.csv --limit 40 --scale 0.1 --rate 1
  tinycb bench poisson:requests=30,rate=2,prompt=60,output=30 --batching static --slo ttft:1s
  tinycb bench poisson:requests=30,rate=2 --engine vllm --trace theirs.jsonl
  tinycb bench --interference --figure gaps

WORKLOAD as for tinycb simulate. Seconds are measured here; those that are modelled come from the figures of
tinycb doctor --measure, and the error of the model is stated. A busy neighbour disturbs every figure.
"""

LONG_PROMPT, DECODING = 2048, 8
BUDGETS = (64, 128, 256, 512)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb bench`."""
    parser.usage = "tinycb bench WORKLOAD [flags]  |  tinycb bench --interference [flags]"
    parser.add_argument("--model", default="smollm2-135m", metavar="MODEL", help="default: %(default)s")
    parser.add_argument(
        "--interference",
        action="store_true",
        help=f"a prompt of {LONG_PROMPT:,} tokens among {DECODING} decoding requests, continuous and chunked",
    )
    parser.add_argument(
        "--budgets",
        default=",".join(map(str, BUDGETS)),
        metavar="LIST",
        help="of --interference: %(default)s",
    )
    parser.add_argument(
        "--long-prompt", default=str(LONG_PROMPT), metavar="N", help="of --interference: %(default)s tokens"
    )
    add_workload_flags(parser, optional=True)
    add_engine_flags(parser)
    add_vllm_flags(parser)
    add_load_output_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Serve, print, and return the exit code."""
    from tinycb.commands.loading import check_trace_path

    if args.interference == (args.workload is not None):
        raise CommandError("give a WORKLOAD, or --interference")
    check_vllm_flags(args)
    if args.interference and args.engine == "vllm":
        raise CommandError("--interference is of tinycb's own engine: leave out --engine vllm")
    check_figure(args.figure)
    if args.trace is not None:
        check_trace_path(args.trace)
    if args.interference:
        return _interference(args)
    if args.engine == "vllm":
        from tinycb.commands.vllm_bench import bench_on_vllm

        return bench_on_vllm(args, engine_config(args))
    return _workload(args)


class _PairedExecutor:
    """The real executor, which also asks what the model of this machine says of each step."""

    def __init__(self, real: LlamaExecutor, cost: CostModel | None, clock: Any) -> None:
        self.real, self.cost, self.clock = real, cost, clock
        self.pairs: list[StepPair] = []
        self.name, self.vocab_size = real.name, real.vocab_size
        self.max_model_len, self.num_blocks = real.max_model_len, real.num_blocks
        self.eos_token_ids, self.check_request = real.eos_token_ids, real.check_request

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        from tinycb.executors import work_of_step
        from tinycb.view.error_table import StepPair

        start = self.clock()
        output = self.real.execute(step)
        measured = self.clock() - start
        if self.cost is not None:
            modelled = self.cost.floor(work_of_step(self.cost, step)).seconds
            tokens = sum(step.scheduled.values())
            if step.pad:
                tokens = len(step.requests) * max(step.scheduled.values())
            self.pairs.append(StepPair(len(step.requests), tokens, measured, modelled))
        return output


def _this_machine(loaded: Any) -> tuple[CostModel | None, str | None]:
    """The model of this machine, or why there is none."""
    from tinycb.costs.devices import THIS_MACHINE, find_device
    from tinycb.costs.roofline import CostModel

    if loaded.model.device.type != "cpu":
        return None, "modelled seconds are for a CPU that tinycb doctor --measure has measured"
    try:
        dtype = str(loaded.model.dtype).removeprefix("torch.")
        kept = loaded.model.bytes_per_weight
        return CostModel(loaded.config, find_device(THIS_MACHINE), dtype, bytes_per_weight=kept), None
    except ValueError as error:
        return None, one_line(error)


def warn_of_neighbours(quiet: bool) -> None:
    """Say on stderr who disturbs the figures."""
    from tinycb.commands.neighbours import busy_neighbours

    busy = [] if quiet else busy_neighbours()
    if busy:
        share = sum(neighbour.share for neighbour in busy)
        what = f"other processes keep {share:.1f} processors busy, the first is {busy[0].pid}"
        print(f"tinycb bench: {what}: every measured figure is disturbed", file=sys.stderr, flush=True)


def _workload(args: argparse.Namespace) -> int:
    from tinycb.commands.load_progress import load_progress
    from tinycb.commands.loading import load_model
    from tinycb.commands.serving import StopSwitch
    from tinycb.commands.terminal import console
    from tinycb.engine import Engine
    from tinycb.executors import LlamaExecutor
    from tinycb.simulation import StuckError, serve_workload
    from tinycb.view.error_table import error_json, error_table
    from tinycb.view.load_tables import report_json

    config, slo = engine_config(args), service_levels(args.slo)
    workload = open_workload_flags(args)
    bad = report_problems("bench", workload.problems, "bad rows")
    loaded = load_model(args.model, config, quiet=args.quiet)
    warn_of_neighbours(args.quiet)
    cost, why_not = _this_machine(loaded)
    clock = time.monotonic
    try:
        executor: Any = _PairedExecutor(LlamaExecutor(loaded, config), cost, clock)
        engine = Engine(config, executor, loaded.tokenizer, trace=args.trace, clock=clock)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None
    with StopSwitch() as switch:

        def wait(until: float) -> None:
            while (left := until - clock()) > 0 and not switch.is_set:
                time.sleep(min(left, 0.05))

        try:
            with load_progress(args.model, len(workload), args.quiet) as on_step:
                report = serve_workload(
                    engine,
                    workload,
                    wait,
                    policy=str(config.batching),
                    slo=slo,
                    on_step=on_step,
                    should_stop=lambda: switch.is_set,
                )
        except StuckError as error:
            raise CommandError(one_line(error), EXIT_FAILED) from None
    if args.json:
        print(json.dumps(report_json(report, "measured") | {"error": error_json(executor.pairs)}))
    else:
        print_tables(workload, [report], "measured", slo)
        out = console(sys.stdout)
        out.print()
        if cost is None:
            out.print(f"no modelled seconds: {why_not}", soft_wrap=True, markup=False)
        elif executor.pairs:
            out.print("modelled beside measured, and the model's error:", markup=False)
            out.print(error_table(executor.pairs))
            out.print(f"modelled from: {cost.device.source}", soft_wrap=True, markup=False)
    if args.figure is not None:
        from tinycb.view.load_plots import draw_course

        title = f"{workload.name}: {args.model} here, measured"
        draw_figure(lambda: draw_course([report], args.figure, title, "measured"))
    return finish("bench", [report], EXIT_BAD_INPUT if bad else EXIT_OK)


def _interference(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from tinycb.commands.load_progress import load_progress
    from tinycb.commands.loading import load_model, make_engine
    from tinycb.commands.serving import StopSwitch
    from tinycb.commands.terminal import console
    from tinycb.interference import interfere
    from tinycb.load_report import Interference
    from tinycb.view.error_table import interference_table

    if args.trace is not None:
        raise CommandError("--interference makes several runs: leave out --trace")
    budgets = [whole("--budgets", text, least=DECODING + 1) for text in args.budgets.split(",")]
    length = whole("--long-prompt", args.long_prompt)
    config = engine_config(args, prefix_caching=False)
    settings: list[tuple[str, EngineConfig]] = [("continuous", replace(config, batching="continuous"))]
    for budget in sorted(set(budgets), reverse=True):
        chunked = replace(config, batching="chunked", max_num_batched_tokens=budget)
        settings.append((f"chunked, {budget}", chunked))
    loaded = load_model(args.model, config, quiet=args.quiet)
    warn_of_neighbours(args.quiet)
    runs: list[Interference] = []
    with StopSwitch() as switch:
        for name, setting in settings:
            engine = make_engine(loaded, setting)
            try:
                with load_progress(name, None, args.quiet) as on_step:
                    result = interfere(
                        engine,
                        name,
                        prompt_tokens=length,
                        decoding=DECODING,
                        on_step=on_step,
                        should_stop=lambda: switch.is_set,
                    )
            except ValueError as error:
                raise CommandError(one_line(error)) from None
            runs += [result] if result is not None else []
            if switch.is_set:
                break
    if args.json:
        for run_ in runs:
            figures = {"policy": run_.name, "forwards": run_.chunks, "gap_before": run_.before}
            print(json.dumps({**figures, "worst_gap": run_.worst, "ttft": run_.ttft, "kind": "measured"}))
    elif runs:
        out = console(sys.stdout)
        out.print(
            f"a prompt of {length:,} tokens arrives among {DECODING} requests that decode", markup=False
        )
        out.print()
        out.print(interference_table(runs, "measured"))
    if args.figure is not None and runs:
        from tinycb.view.load_plots import draw_gaps

        title = f"{args.model} here, measured: a prompt of {length:,} tokens arrives at 0 s"
        draw_figure(lambda: draw_gaps({r.name: r.gaps for r in runs}, args.figure, title, "measured"))
    return EXIT_INTERRUPTED if switch.is_set else EXIT_OK
