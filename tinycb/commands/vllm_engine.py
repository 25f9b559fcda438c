"""`tinycb run --engine vllm`: the same prompts with the same settings on vLLM, reported as our own run is.

vLLM runs in a process of its own (`vllm_process.py`); what is printed is read from the trace of its steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import CommandError

if TYPE_CHECKING:
    from tinycb.commands.prompts import PromptSpec
    from tinycb.config import EngineConfig
    from tinycb.request import RequestOutput

__all__ = ["add_model_texts", "length_remark", "run_on_vllm"]


def run_on_vllm(args: argparse.Namespace, config: EngineConfig, specs: Sequence[PromptSpec]) -> int:
    """Serve the prompts, print what `tinycb run` prints, and return the exit code."""
    from tinycb.commands.loading import check_trace_path
    from tinycb.commands.run import as_json, complain
    from tinycb.commands.serving import Served
    from tinycb.commands.terminal import Watcher, progress
    from tinycb.commands.vllm_flags import plan_for_vllm
    from tinycb.commands.vllm_process import serve
    from tinycb.tracing.metrics import MetricsCollector
    from tinycb.tracing.reader import TraceReader
    from tinycb.view.run_state import RunInfo, RunState

    if args.compare:
        raise CommandError(
            "--compare is of tinycb's own policies: leave out --engine vllm, or compare traces"
        )
    if args.trace is not None:
        check_trace_path(args.trace)
    plan = plan_for_vllm("run", args, config)
    requests = [
        {"id": spec.request_id, "params": asdict(spec.params)}
        | ({"prompt": spec.text} if spec.token_ids is None else {"prompt_token_ids": spec.token_ids})
        for spec in specs
    ]
    with TemporaryDirectory(prefix="tinycb-") as folder:
        trace = Path(args.trace or Path(folder, "trace.jsonl"))
        with progress(f"vLLM {plan.vllm.version} loads and serves", args.quiet):
            run = serve(plan, requests, trace, chat=args.chat)
        add_model_texts(trace, plan.model, args.model, {spec.request_id: spec.text for spec in specs})
        with TraceReader(trace) as reader:
            length_remark("run", args, reader.header)
            info = RunInfo(
                model=args.model,
                batching=f"vLLM {plan.vllm.version}",
                attention="vLLM's",
                num_blocks=reader.num_blocks,
                budget=config.max_num_batched_tokens,
            )
            watcher = Watcher(RunState(info, [spec.request_id for spec in specs]))
            metrics = MetricsCollector(config)
            for record in reader:
                metrics.observe(record)
                watcher.observe(record)
        served = Served(_outputs(run.answers, specs, metrics.finished), interrupted=run.interrupted)
        where = {spec.request_id: spec.where or f"request {spec.request_id}" for spec in specs}
        served.problems = [f"{where[a['id']]}: {a['error']}" for a in run.answers if "error" in a]
        if args.json:
            for output in served.outputs:
                print(json.dumps(as_json(output), ensure_ascii=False, allow_nan=False))
        else:
            from tinycb.commands.report import print_run

            print_run(served, specs, watcher, metrics.totals, quiet=args.quiet)
        if args.svg is not None:
            from tinycb.commands.report import write_svg

            write_svg(args.svg, watcher)
    return complain(served)


def length_remark(command: str, args: argparse.Namespace, header: Mapping[str, Any]) -> None:
    """Say on stderr if vLLM shortened max_model_len to what its pool holds; ours may be more than that."""
    length, capacity = header["config"]["max_model_len"], header["num_blocks"] * header["block_size"]
    if args.max_model_len is None and length == capacity and not args.quiet:
        why = f"vLLM wants room for one request of that length, and the pool holds {capacity:,} tokens"
        print(f"tinycb {command}: {why}: --max-model-len {length}", file=sys.stderr, flush=True)


def add_model_texts(trace: Path, model: str, name: str, prompts: Mapping[str, str | None]) -> None:
    """Where the tokenizer is at hand, so that the trace reads as ours do. name: the model's, as asked for."""
    from tinycb.adapters.texts import add_texts
    from tinycb.tokenizer import Tokenizer

    token_text: Callable[[int], str] | None = None
    with contextlib.suppress(ValueError, OSError):
        tokenizer = Tokenizer.from_folder(Path(model)) if Path(model).is_dir() else None
        token_text = tokenizer.token_text if tokenizer is not None else None
    add_texts(trace, token_text, prompts, model=name)


def _outputs(
    answers: Sequence[Mapping[str, Any]], specs: Sequence[PromptSpec], metrics: Callable[[str], Any]
) -> list[RequestOutput]:
    from tinycb.request import FinishReason, RequestOutput

    prompts = {spec.request_id: spec.text for spec in specs}
    reasons = set(FinishReason)
    return [
        RequestOutput(
            request_id=answer["id"],
            prompt_token_ids=answer["prompt_token_ids"],
            token_ids=answer["token_ids"],
            text=answer["text"],
            finish_reason=FinishReason(reason if (reason := answer["finish_reason"]) in reasons else "stop"),
            metrics=metrics(answer["id"]),
            prompt=prompts[answer["id"]],
        )
        for answer in answers
        if "error" not in answer
    ]
