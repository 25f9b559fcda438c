"""`--engine vllm`: the same prompts with the same settings on vLLM, recorded, and reported as our own run is.

vLLM runs in a process of its own, in the interpreter that VLLM_PYTHON names or in this one
(`tinycb.adapters.vllm_job`); what is printed is read from the trace of its steps. `run.py` calls
`run_on_vllm`; whoever has requests and a trace file to spare calls `serve`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import EXIT_FAILED, CommandError, one_line

if TYPE_CHECKING:
    from tinycb.adapters.vllm_settings import Installation
    from tinycb.commands.prompts import PromptSpec
    from tinycb.config import EngineConfig
    from tinycb.request import RequestOutput

__all__ = ["add_vllm_flags", "check_vllm_flags", "run_on_vllm", "serve"]

_PASSED_ON = {
    "tensor_parallel_size": ("N", "GPUs that each layer is split over"),
    "pipeline_parallel_size": ("N", "groups of layers, each on GPUs of its own"),
    "distributed_executor_backend": ("NAME", "mp, ray, …: how vLLM reaches them"),
}


def add_vllm_flags(parser: argparse.ArgumentParser) -> None:
    """Which engine, and what only vLLM has."""
    group = parser.add_argument_group("another engine")
    group.add_argument(
        "--engine", choices=("tinycb", "vllm"), default="tinycb", help="what serves (default: %(default)s)"
    )
    for name, (metavar, text) in _PASSED_ON.items():
        group.add_argument("--" + name.replace("_", "-"), metavar=metavar, help=f"of vLLM: {text}")


def check_vllm_flags(args: argparse.Namespace) -> None:
    """Raise CommandError if one is given to our own engine."""
    for name in _PASSED_ON:
        if getattr(args, name) is not None and args.engine != "vllm":
            raise CommandError(f"--{name.replace('_', '-')} is vLLM's: give --engine vllm too")


def run_on_vllm(args: argparse.Namespace, config: EngineConfig, specs: Sequence[PromptSpec]) -> int:
    """Serve the prompts, print what `tinycb run` prints, and return the exit code."""
    from tinycb.adapters import vllm_settings
    from tinycb.commands.loading import check_trace_path
    from tinycb.commands.run import as_json, complain
    from tinycb.commands.serving import Served
    from tinycb.commands.terminal import Watcher, progress
    from tinycb.tracing.metrics import MetricsCollector
    from tinycb.tracing.reader import TraceReader
    from tinycb.view.run_state import RunInfo, RunState

    if args.compare:
        raise CommandError(
            "--compare is of tinycb's own policies: leave out --engine vllm, or compare traces"
        )
    if args.trace is not None:
        check_trace_path(args.trace)
    try:
        vllm = vllm_settings.find()
    except ValueError as error:
        raise CommandError(one_line(error), EXIT_FAILED) from None
    if vllm.is_cpu and args.block_size is None:
        config = replace(config, block_size=vllm_settings.CPU_BLOCK)
    if not args.quiet:
        for line in _remarks(config, vllm, args):
            print(f"tinycb run: {line}", file=sys.stderr)
    requests = [
        {"id": spec.request_id, "params": asdict(spec.params)}
        | ({"prompt": spec.text} if spec.token_ids is None else {"prompt_token_ids": spec.token_ids})
        for spec in specs
    ]
    model = _model(args.model)
    with TemporaryDirectory(prefix="tinycb-") as folder:
        trace = Path(args.trace or Path(folder, "trace.jsonl"))
        with progress(f"vLLM {vllm.version} loads and serves"):
            answers = serve(vllm, model, config, requests, trace, chat=args.chat, arguments=_passed_on(args))
        _add_texts(trace, model, args.model, specs)
        with TraceReader(trace) as reader:
            names = [spec.request_id for spec in specs]
            info = RunInfo(
                model=args.model,
                batching=f"vLLM {vllm.version}",
                attention="vLLM's",
                num_blocks=reader.num_blocks,
                budget=config.max_num_batched_tokens,
            )
            watcher, metrics = Watcher(RunState(info, names)), MetricsCollector(config)
            for record in reader:
                metrics.observe(record)
                watcher.observe(record)
            served = Served(_outputs(answers, specs, metrics))
            served.problems = [f"request {a['id']}: {a['error']}" for a in answers if "error" in a]
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


def serve(
    vllm: Installation,
    model: str,
    config: EngineConfig,
    requests: Sequence[Mapping[str, Any]],
    trace: Path,
    *,
    chat: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Run requests on vLLM, recorded in `trace`; returns an answer each: token_ids, text, finish_reason.

    requests: as `tinycb.adapters.vllm_job` takes them, with `"time"` for an arrival in seconds from the
    start. arguments: further ones of `vllm.LLM`. Raises CommandError in one line if vLLM does not run them.
    """
    from tinycb.adapters import vllm_settings

    try:
        settings = vllm_settings.vllm_arguments(config, is_cpu=vllm.is_cpu)
    except ValueError as error:
        from tinycb.commands.flags import flag_message

        raise CommandError(flag_message(error)) from None
    job = {
        "model": model,
        "arguments": {**settings, **({"enforce_eager": True} if vllm.is_cpu else {}), **(arguments or {})},
        "trace": str(trace.absolute()),
        "chat": chat,
        "requests": list(requests),
    }
    with TemporaryDirectory(prefix="tinycb-") as folder, vllm_settings.job_environment() as environment:
        jobs, results, log = (Path(folder, name) for name in ("jobs.json", "results.jsonl", "log"))
        jobs.write_text(json.dumps([job]), encoding="utf-8")
        command = [vllm.python, "-m", "tinycb.adapters.vllm_job", str(jobs), str(results)]
        with log.open("wb") as output, _process(command, environment, output) as process:
            process.wait()
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        if not lines:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise CommandError(
                f"vLLM did not start: {one_line(said[-1] if said else 'no output')}", EXIT_FAILED
            )
    result = json.loads(lines[0])
    if "error" in result:
        raise CommandError(f"vLLM: {one_line(result['error'])}", EXIT_FAILED)
    if not trace.exists():
        raise CommandError(f"vLLM served, but left no trace in {trace}", EXIT_FAILED)
    outputs: list[dict[str, Any]] = result["outputs"]
    return outputs


@contextlib.contextmanager
def _process(
    command: Sequence[str], environment: Mapping[str, str], output: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """In a group of its own, so that its workers end with it, however this command ends."""
    process = subprocess.Popen(
        command, env=dict(environment), stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield process
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)


def _add_texts(trace: Path, model: str, name: str, specs: Sequence[PromptSpec]) -> None:
    """Where the tokenizer is at hand, so that the trace reads as ours do."""
    from tinycb.adapters.texts import add_texts
    from tinycb.tokenizer import Tokenizer

    with contextlib.suppress(ValueError, OSError):
        tokenizer = Tokenizer.from_folder(Path(model)) if Path(model).is_dir() else None
        if tokenizer is not None:
            prompts = {spec.request_id: spec.text for spec in specs}
            add_texts(trace, tokenizer.token_text, prompts, model=name)


def _model(name: str) -> str:
    """What vLLM can load: the folder of a known model, or a folder or hub id as it is."""
    from tinycb.model.checkpoint import locate

    if name == "tiny-random":
        raise CommandError("tiny-random exists in memory only, and vLLM needs a folder or a hub id")
    if name.endswith(".gguf"):
        raise CommandError(f"vLLM is given a folder or a hub id here, not {name}")
    if Path(name).is_dir() or "/" in name:
        return name
    try:
        return str(locate(name, lambda message: None)[0])
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None


def _passed_on(args: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in _PASSED_ON:
        text = getattr(args, name)
        if text is not None:
            if name.endswith("_size") and not (text.isdigit() and int(text)):
                flag = "--" + name.replace("_", "-")
                raise CommandError(f"{flag} must be a positive whole number, not {text!r}")
            values[name] = int(text) if name.endswith("_size") else text
    return values


def _remarks(config: EngineConfig, vllm: Installation, args: argparse.Namespace) -> list[str]:
    """What is not as asked, or has no counterpart."""
    from tinycb.adapters.recorder import TESTED_VERSIONS
    from tinycb.adapters.vllm_settings import unmapped

    lines = []
    if vllm.version.split("+")[0] not in TESTED_VERSIONS:
        lines.append(f"this is vLLM {vllm.version}; the recorder is tested with {', '.join(TESTED_VERSIONS)}")
    if vllm.is_cpu and args.block_size is None:
        lines.append(
            f"vLLM's CPU build wants blocks of a multiple of 32 tokens: --block-size {config.block_size}"
        )
    names = ", ".join("--" + name.replace("_", "-") for name in unmapped(config))
    if names:
        lines.append(f"vLLM has no counterpart of {names}: left out")
    return lines


def _outputs(
    answers: Sequence[Mapping[str, Any]], specs: Sequence[PromptSpec], metrics: Any
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
            metrics=metrics.finished(answer["id"]),
            prompt=prompts[answer["id"]],
        )
        for answer in answers
        if "error" not in answer
    ]
