"""Serve a workload with the real scheduler on a modelled device, and compare ways of batching."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    one_line,
)
from tinycb.commands.flags import add_engine_flags, engine_config, engine_values
from tinycb.commands.load_flags import (
    add_load_output_flags,
    add_workload_flags,
    check_figure,
    open_workload_flags,
    policies,
    service_levels,
    trace_path,
)
from tinycb.commands.load_output import draw_figure, finish, print_tables, report_problems
from tinycb.commands.numbers import dtype_name, positive

if TYPE_CHECKING:
    from tinycb.config import EngineConfig
    from tinycb.costs.roofline import CostModel
    from tinycb.load_report import LoadReport
    from tinycb.workloads import Workload

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb simulate azure_2023_conv_1000.csv --model llama-3-8b --device h100
  tinycb simulate poisson:requests=500,rate=20 --batching continuous,chunked --slo ttft:1s,tpot:50ms
  tinycb simulate azure_2023_code_1000.csv --sweep rate=1,2,4,8,16 --figure sweep
  tinycb simulate bursty:requests=200,shared_prefix=512 --batching chunked --trace run.jsonl

WORKLOAD is a file (Azure's or BurstGPT's CSV, Mooncake's or tinycb's JSONL; also looked for in $TINYCB_DATA),
or poisson:… or bursty:… with requests, rate, prompt, output, spread, shared_prefix, num_prefixes, seed.

Steps, tokens, blocks and decisions are exact: the project's own scheduler makes them. Seconds are modelled:
the floor of each step on the device, by its vendor's figures. Which step an arrival meets follows from them.
"""


_ENGINE = ("block_size", "num_blocks", "max_num_batched_tokens", "max_num_seqs", "max_model_len")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb simulate`."""
    parser.add_argument("--model", default="llama-3-8b", metavar="MODEL", help="default: %(default)s")
    parser.add_argument("--device", default="h100", metavar="NAME", help="a100, h100 (default), h200 or cpu")
    parser.add_argument("--dtype", metavar="TYPE", help="default: bf16; on cpu float32")
    parser.add_argument(
        "--efficiency", default="1", metavar="X", help="share of the device's figures reached (default: 1)"
    )
    parser.add_argument(
        "--batching", default="static,continuous,chunked", metavar="LIST", help="default: %(default)s"
    )
    add_workload_flags(parser)
    title = "engine; what is not given follows from the device and the model"
    group = add_engine_flags(parser, _ENGINE, title=title, computed=_ENGINE[1:])
    group.add_argument("--memory", metavar="SIZE", help="for weights and cache; default: 0.9 of the device's")
    group = add_load_output_flags(parser, several=True)
    group.add_argument(
        "--sweep", metavar="rate=R,R,…", help="the same at several rates: latency against load"
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the flags came to."""

    workload: Workload
    cost: CostModel
    config: EngineConfig
    names: list[str]
    slo: dict[str, float] | None
    rates: list[float] | None


def run(args: argparse.Namespace) -> int:
    """Simulate, print, and return the exit code."""
    plan = _plan(args)
    bad = report_problems("simulate", plan.workload.problems, "bad rows")
    code = _sweep(args, plan) if plan.rates is not None else _compare(args, plan)
    return code or (EXIT_BAD_INPUT if bad else EXIT_OK)


def _plan(args: argparse.Namespace) -> Plan:
    from tinycb.commands.loading import check_trace_path
    from tinycb.config import parse_bytes
    from tinycb.costs.devices import THIS_MACHINE, find_device
    from tinycb.costs.roofline import CostModel
    from tinycb.costs.shapes import load_shape
    from tinycb.costs.sizing import USABLE, size_engine

    names, slo, rates = policies(args.batching), service_levels(args.slo), _rates(args.sweep)
    if rates is not None and args.trace is not None:
        raise CommandError("--trace records one run a policy: leave out --sweep")
    if args.trace is not None:
        check_trace_path(args.trace)
    check_figure(args.figure)
    dtype = dtype_name(args.dtype or ("float32" if args.device == THIS_MACHINE else "bfloat16"))
    config = engine_config(args, _ENGINE, dtype=dtype)
    try:
        shape, device = load_shape(args.model), find_device(args.device)
        cost = CostModel(shape, device, dtype, positive("--efficiency", args.efficiency, 1.0))
        memory = parse_bytes(args.memory, "--memory") if args.memory else int(USABLE * device.memory)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None
    workload = open_workload_flags(args)
    lengths = [arrival.prompt_tokens + arrival.output_tokens for arrival in workload.arrivals]
    try:
        sizing = size_engine(cost, memory, config.block_size, sum(lengths) / len(lengths))
    except ValueError as error:
        raise CommandError(f"{args.model} on {device.name}: {one_line(error)}") from None
    computed: dict[str, Any] = {
        "num_blocks": sizing.num_blocks,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "max_num_seqs": sizing.max_num_seqs,
        "max_model_len": shape.max_model_len_limit,
    }
    config = replace(config, **(computed | engine_values(args, _ENGINE)))
    if config.max_model_len is not None and config.max_model_len > shape.max_model_len_limit:
        limit = shape.max_model_len_limit
        raise CommandError(f"--max-model-len {config.max_model_len} is more than {args.model}'s own {limit}")
    return Plan(workload, cost, config, names, slo, rates)


def _rates(text: str | None) -> list[float] | None:
    if text is None:
        return None
    name, _, values = text.partition("=")
    if name != "rate" or not values:
        raise CommandError(f"--sweep must be rate=R,R,…, as in rate=1,2,4, not {text!r}")
    return sorted({positive("--sweep rate", value) for value in values.split(",")})


def _compare(args: argparse.Namespace, plan: Plan) -> int:
    """One rate: every policy, side by side."""
    from tinycb.commands.serving import StopSwitch
    from tinycb.view.load_plots import draw_course
    from tinycb.view.load_tables import report_json

    reports: list[LoadReport] = []
    code = EXIT_OK
    with StopSwitch() as switch:
        for name in plan.names:
            if switch.is_set:
                break
            code = _one(args, plan, plan.workload, name, reports, switch) or code
    if args.json:
        for report in reports:
            print(json.dumps(report_json(report, "modelled")))
    elif reports:
        print_tables(plan.workload, reports, "modelled", plan.slo, _setting(args, plan))
    if args.figure is not None and reports:
        title = f"{plan.workload.name}: {args.model} on {args.device}, modelled"
        draw_figure(lambda: draw_course(reports, args.figure, title, "modelled"))
    return finish("simulate", reports, code)


def _sweep(args: argparse.Namespace, plan: Plan) -> int:
    """Several rates: a line a rate and policy. A run that fails is a line on stderr; the others go on."""
    from tinycb.commands.serving import StopSwitch
    from tinycb.commands.terminal import console
    from tinycb.view.load_plots import draw_sweep
    from tinycb.view.load_tables import report_json, sweep_table, workload_line
    from tinycb.workloads import WorkloadError

    assert plan.rates is not None
    points: list[tuple[float, LoadReport]] = []
    code, interrupted = EXIT_OK, False
    with StopSwitch() as switch:
        for rate in plan.rates:
            try:
                workload = plan.workload.at_rate(rate)
            except WorkloadError as error:
                raise CommandError(one_line(error)) from None
            for name in plan.names:
                reports: list[LoadReport] = []
                if not switch.is_set:
                    code = _one(args, plan, workload, name, reports, switch, f"{rate:g} requests/s, ") or code
                interrupted = interrupted or switch.is_set
                points += [(rate, report) for report in reports if not report.interrupted]
    if args.json:
        for rate, report in points:
            print(json.dumps({"rate": rate, **report_json(report, "modelled")}))
    else:
        out = console(sys.stdout)
        out.print(workload_line(plan.workload), soft_wrap=True, markup=False)
        out.print(_setting(args, plan), soft_wrap=True, markup=False)
        out.print()
        out.print(sweep_table(points, "modelled"))
    if args.figure is not None and points:
        title = f"{plan.workload.name}: {args.model} on {args.device}, modelled"
        draw_figure(lambda: draw_sweep(points, args.figure, title, "modelled"))
    refused = list(dict.fromkeys(problem for _, report in points for problem in report.problems))
    bad = report_problems("simulate", refused, "refused requests")
    if interrupted:
        wanted = len(plan.rates) * len(plan.names)
        print(f"tinycb simulate: interrupted: {len(points)} of {wanted} runs were finished", file=sys.stderr)
        return EXIT_INTERRUPTED
    return code or (EXIT_BAD_INPUT if bad else EXIT_OK)


def _one(
    args: argparse.Namespace,
    plan: Plan,
    workload: Workload,
    name: str,
    reports: list[LoadReport],
    switch: Any,
    label: str = "",
) -> int:
    """One policy at one rate; its report goes to `reports`. A failure is told, and is the exit code."""
    from tinycb.commands.load_progress import load_progress
    from tinycb.engine import Engine
    from tinycb.executors import CostModelExecutor, SimulatedClock
    from tinycb.simulation import StuckError, serve_workload, simulated_wait

    clock = SimulatedClock()
    executor = CostModelExecutor(
        plan.cost,
        clock,
        max_model_len=plan.config.max_model_len,
        name=f"{args.model} on {args.device}, modelled",
    )
    trace = trace_path(args.trace, name, len(plan.names) == 1) if args.trace is not None else None
    try:
        engine = Engine(replace(plan.config, batching=name), executor, trace=trace, clock=clock)
        with load_progress(label + name, len(workload), args.quiet) as on_step:
            report = serve_workload(
                engine,
                workload,
                simulated_wait(clock),
                policy=name,
                slo=plan.slo,
                on_step=on_step,
                should_stop=lambda: switch.is_set,
            )
    except (ValueError, OSError, StuckError) as error:
        print(f"tinycb simulate: {label}{name}: {one_line(error)}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    reports.append(report)
    if engine.trace_error is not None:
        print(
            f"tinycb simulate: {one_line(engine.trace_error)}; the run went on", file=sys.stderr, flush=True
        )
        return EXIT_BAD_INPUT
    return EXIT_OK


def _setting(args: argparse.Namespace, plan: Plan) -> str:
    config, device = plan.config, plan.cost.device
    reach = f" at {plan.cost.efficiency:g} of its figures" if plan.cost.efficiency < 1 else ""
    return (
        f"{args.model} in {plan.cost.dtype} on {device.name}{reach}: {config.num_blocks:,} blocks of "
        f"{config.block_size}, max_num_seqs {config.max_num_seqs}, budget {config.max_num_batched_tokens}\n"
        f"seconds are modelled from: {device.source}"
    )
