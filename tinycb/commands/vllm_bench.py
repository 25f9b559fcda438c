"""`tinycb bench --engine vllm`: the same requests at the same times on vLLM, in the same tables.

Counts and latencies are read from the trace of vLLM's steps, as `tinycb run --engine vllm` does. A prompt is
made of the same pieces, so wherever both models have a vocabulary of the same size, its tokens are the same.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import EXIT_BAD_INPUT, EXIT_OK
from tinycb.commands.load_flags import open_workload_flags, service_levels
from tinycb.commands.load_output import draw_figure, finish, print_tables, report_problems

if TYPE_CHECKING:
    from tinycb.config import EngineConfig
    from tinycb.workloads import Arrival

__all__ = ["bench_on_vllm"]


def bench_on_vllm(args: argparse.Namespace, config: EngineConfig) -> int:
    """Serve, print, and return the exit code."""
    from tinycb.commands.bench import warn_of_neighbours
    from tinycb.commands.terminal import progress
    from tinycb.commands.vllm_engine import add_model_texts, length_remark
    from tinycb.commands.vllm_flags import plan_for_vllm
    from tinycb.commands.vllm_process import serve
    from tinycb.load_report import report_of
    from tinycb.tracing.reader import TraceReader
    from tinycb.view.load_tables import report_json

    slo, workload = service_levels(args.slo), open_workload_flags(args)
    plan = plan_for_vllm("bench", args, config)
    bad = report_problems("bench", workload.problems, "bad rows")
    warn_of_neighbours(args.quiet)
    label = f"vLLM {plan.vllm.version}"
    with TemporaryDirectory(prefix="tinycb-") as folder:
        trace = Path(args.trace or Path(folder, "trace.jsonl"))
        with progress(f"{label} loads, and serves {len(workload):,} requests", args.quiet):
            run = serve(plan, [_request(arrival) for arrival in workload.arrivals], trace, final_only=True)
        if args.trace is not None:
            add_model_texts(trace, plan.model, args.model, {})
        with TraceReader(trace) as reader:
            length_remark("bench", args, reader.header)
            report = report_of(reader, plan.config, reader.num_blocks, policy=label, slo=slo)
    report.interrupted = run.interrupted
    where = {arrival.request_id: arrival.where or arrival.request_id for arrival in workload.arrivals}
    report.problems = [f"{where[a['id']]}: {a['error']}" for a in run.answers if "error" in a]
    report.totals = replace(report.totals, refused=len(report.problems))  # no trace holds what vLLM refused
    if args.json:
        print(json.dumps(report_json(report, "measured")))
    else:
        print_tables(workload, [report], "measured", slo)
    if args.figure is not None:
        from tinycb.view.load_plots import draw_course

        title = f"{workload.name}: {args.model} on {label}, measured"
        draw_figure(lambda: draw_course([report], args.figure, title, "measured"))
    return finish("bench", [report], EXIT_BAD_INPUT if bad else EXIT_OK)


def _request(arrival: Arrival) -> dict[str, Any]:
    """As the job takes it: prompts in pieces stay small until they are served."""
    from tinycb.workloads import Piece

    prompt: dict[str, Any] = {"pieces": [(p.key, p.length) for p in arrival.prompt if isinstance(p, Piece)]}
    if not prompt["pieces"]:
        prompt = {"prompt_token_ids": list(arrival.prompt)}
    params = {"max_tokens": arrival.output_tokens, "ignore_eos": True, "temperature": 0.0}
    return {"id": arrival.request_id, "time": arrival.time, "params": params, **prompt}
