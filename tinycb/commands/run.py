"""Serve prompts on a model, and watch every step."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
)
from tinycb.commands.flags import add_engine_flags, add_sampling_flags, engine_config, sampling_values
from tinycb.commands.prompts import PromptSpec, from_arguments, from_file
from tinycb.commands.vllm_flags import add_vllm_flags, check_vllm_flags

if TYPE_CHECKING:
    from tinycb.commands.serving import Served
    from tinycb.request import RequestOutput

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb run "The capital of France is"
  tinycb run --chat "What is a KV cache?" "Name three colours." --max-tokens 40
  tinycb run --prompts prompts.txt --batching continuous --max-num-seqs 4
  tinycb run --compare --prompts prompts.jsonl
  tinycb run --quiet --json --prompts - < prompts.txt | jq .text
  tinycb run --engine vllm --trace theirs.jsonl --prompts prompts.txt
  tinycb run --model ./my-llama --dtype bfloat16 --trace run.jsonl "Once upon a time"

A file of prompts has a prompt a line, or a JSON object a line:
  {"prompt": "Hello", "id": "greeting", "max_tokens": 8, "stop": ["\\n"]}
  {"prompt_token_ids": [1, 2, 3], "temperature": 0.8, "seed": 1}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb run`."""
    parser.usage = "tinycb run [PROMPT …] [--prompts FILE] [flags]"
    parser.add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="a prompt; one that begins with - goes after --"
    )
    parser.add_argument("--prompts", metavar="FILE", help="a file of prompts, - for standard input")
    parser.add_argument(
        "--model",
        default="smollm2-135m",
        metavar="MODEL",
        help="smollm2-135m, tiny-random, a folder, a .gguf file or a hub id (default: %(default)s)",
    )
    parser.add_argument(
        "--chat", action="store_true", help="put each text prompt into the model's chat template"
    )
    add_engine_flags(parser)
    add_sampling_flags(parser)
    add_vllm_flags(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--compare",
        action="store_true",
        help="serve the prompts one at a time, static, continuous and chunked, and compare",
    )
    group.add_argument("--trace", metavar="FILE", help="record every step; with --compare, a file a policy")
    group.add_argument(
        "--svg", metavar="FILE", help="draw the run: its most telling step, and all of its steps"
    )
    group.add_argument(
        "--json", action="store_true", help="a JSON object a request on stdout; with --compare, one a policy"
    )
    group.add_argument("--quiet", action="store_true", help="the results and nothing else")


def run(args: argparse.Namespace) -> int:
    """Serve, print, and return the exit code."""
    config = engine_config(args)
    check_vllm_flags(args)
    specs, problems = _prompts(args)
    if args.compare and args.batching is not None:
        raise CommandError("--compare runs every policy: leave out --batching")
    for problem in problems:
        print(f"tinycb run: {problem}", file=sys.stderr, flush=True)
    if not specs:
        return EXIT_BAD_INPUT
    if args.engine == "vllm":
        from tinycb.commands.vllm_engine import run_on_vllm

        return run_on_vllm(args, config, specs) or (EXIT_BAD_INPUT if problems else EXIT_OK)

    from tinycb.commands.loading import check_trace_path, load_model

    if args.trace is not None:
        check_trace_path(args.trace)
    loaded = load_model(args.model, config, quiet=args.quiet)
    if args.chat and getattr(loaded.tokenizer, "chat_template", None) is None:
        raise CommandError(f"{loaded.name} has no chat template: leave out --chat")
    if args.compare:
        from tinycb.commands.compare import compare

        code = compare(args, config, loaded, specs)
    else:
        code = _serve_and_print(args, config, loaded, specs)
    return code or (EXIT_BAD_INPUT if problems else EXIT_OK)


def _prompts(args: argparse.Namespace) -> tuple[list[PromptSpec], list[str]]:
    defaults = sampling_values(args)
    if args.prompt and args.prompts is not None:
        raise CommandError("give prompts as arguments or in --prompts FILE, not both")
    if args.prompts is not None:
        return from_file(args.prompts, defaults)
    if not args.prompt:
        raise CommandError(
            'there is no prompt; give one, as in: tinycb run "Once upon a time", or --prompts FILE'
        )
    return from_arguments(args.prompt, defaults)


def _serve_and_print(args: argparse.Namespace, config: Any, loaded: Any, specs: Sequence[PromptSpec]) -> int:
    from tinycb.commands.loading import make_engine
    from tinycb.commands.serving import Stopwatch, serve
    from tinycb.commands.watching import watcher_for

    stopwatch = Stopwatch()
    engine = make_engine(loaded, config, trace=args.trace, clock=stopwatch)
    with watcher_for(engine, [spec.request_id for spec in specs], stopwatch, args) as watcher:
        served = serve(engine, specs, watcher, chat=args.chat)
    if args.json:
        for output in served.outputs:
            print(json.dumps(as_json(output), ensure_ascii=False, allow_nan=False))
    else:
        from tinycb.commands.report import print_run

        print_run(served, specs, watcher, engine.metrics.totals, quiet=args.quiet)
    if args.svg is not None:
        from tinycb.commands.report import write_svg

        write_svg(args.svg, watcher)
    return complain(served)


def as_json(output: RequestOutput) -> dict[str, Any]:
    """One request as `--json` prints it; `metrics` is in seconds, and in steps under names in `_steps`."""
    return {
        "id": output.request_id,
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "token_ids": output.token_ids,
        "text": output.text,
        "finish_reason": str(output.finish_reason),
        "error": output.error,
        "metrics": asdict(output.metrics) if output.metrics is not None else None,
    }


def complain(served: Served) -> int:
    """A line on stderr for everything that went wrong, and the exit code that says so."""
    sys.stdout.flush()
    lines = list(served.problems)
    lines += [f"request {o.request_id}: {o.error}" for o in served.outputs if o.error is not None]
    if served.trace_error is not None:
        lines.append(f"{served.trace_error}; the trace ends there, and every request was served all the same")
    if served.failure is not None:
        lines.append(served.failure)
    if served.interrupted:
        done = sum(str(output.finish_reason) != "abort" for output in served.outputs)
        lines.append(f"interrupted: {done} of {len(served.outputs)} requests were finished")
    for line in lines:
        print(f"tinycb run: {line}", file=sys.stderr, flush=True)
    if served.interrupted:
        return EXIT_INTERRUPTED
    if served.problems or served.trace_error is not None:
        return EXIT_BAD_INPUT
    return EXIT_FAILED if served.failure or any(o.error is not None for o in served.outputs) else EXIT_OK
