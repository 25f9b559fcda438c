"""Where the time of a step goes: products, attention, packing, scheduling, sampling; and the floor."""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from tinycb.commands.errors import EXIT_OK, CommandError, one_line
from tinycb.commands.flags import add_engine_flags, engine_config
from tinycb.commands.numbers import whole

if TYPE_CHECKING:
    from tinycb.request import Request

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb profile                                              16 requests of mixed lengths
  tinycb profile --requests 32 --prompt 16 --output 256       nearly all decoding
  tinycb profile --requests 32 --prompt 512 --output 8        nearly all prefill
  tinycb profile --batching static --attention mask --dtype bf16

After each step its matrix products run once more, alone, on as many rows: what they take is the floor, so the
run takes longer than the time it reports. A busy neighbour disturbs every figure.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb profile`."""
    parser.add_argument("--model", default="smollm2-135m", metavar="MODEL", help="default: %(default)s")
    group = parser.add_argument_group("requests, which all come at once")
    group.add_argument("--requests", default="16", metavar="N", help="how many (default: %(default)s)")
    for name, span in (("prompt", "8-128"), ("output", "4-96")):
        text = f"tokens of each, or the least and the most (default: {span})"
        group.add_argument(f"--{name}", default=span, metavar="N or A-B", help=text)
    add_engine_flags(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true", help="one JSON object on stdout, in seconds of the whole run"
    )
    group.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    """Serve, print the table, and return the exit code."""
    from tinycb.commands.load_progress import load_progress
    from tinycb.commands.loading import load_model, make_engine
    from tinycb.commands.neighbours import busy_neighbours
    from tinycb.commands.terminal import console
    from tinycb.profiling import profile
    from tinycb.view.profile_table import distance, profile_table

    config = engine_config(args)
    count = whole("--requests", args.requests)
    prompt, output = _span("--prompt", args.prompt), _span("--output", args.output)
    loaded = load_model(args.model, config, quiet=args.quiet)
    if loaded.model.device.type != "cpu":
        raise CommandError("profile measures the CPU that runs the model: give --device cpu")
    share = 0.0 if args.quiet else sum(neighbour.share for neighbour in busy_neighbours())
    if share:
        text = f"tinycb profile: other processes keep {share:.1f} processors busy: every figure is disturbed"
        print(text, file=sys.stderr, flush=True)
    engine = make_engine(loaded, config)
    try:
        with load_progress("profile", count, args.quiet) as on_step:
            found = profile(engine, _requests(count, prompt, output, loaded.config.vocab_size), on_step)
    except ValueError as error:
        raise CommandError(one_line(error)) from None
    if args.json:
        print(json.dumps(asdict(found)))
        return EXIT_OK
    out = console(sys.stdout)
    dtype = str(loaded.model.dtype).removeprefix("torch.")
    what = f"{args.model}, {config.batching}, {config.attention}, {dtype}: {count} requests"
    steps = f"{found.steps:,} steps of {found.tokens / found.steps:,.1f} tokens on average"
    out.print(f"{what}, {steps}", markup=False, soft_wrap=True)
    out.print()
    out.print(profile_table(found))
    out.print(distance(found), markup=False, soft_wrap=True)
    return EXIT_OK


def _span(flag: str, text: str) -> tuple[int, int]:
    """`8-128` or `16`: the least and the most."""
    low, _, high = text.partition("-")
    span = whole(flag, low), whole(flag, high or low)
    if span[0] > span[1]:
        raise CommandError(
            f"{flag} must be a number, or a smaller and a larger one such as 8-128, not {text}"
        )
    return span


def _requests(count: int, prompt: tuple[int, int], output: tuple[int, int], vocab_size: int) -> list[Request]:
    """Of random tokens, the same in every run."""
    from tinycb.request import Request, SamplingParams

    rng = random.Random(0)
    requests = []
    for index in range(count):
        tokens = rng.choices(range(vocab_size), k=rng.randint(*prompt))
        params = SamplingParams(max_tokens=rng.randint(*output), ignore_eos=True)
        requests.append(Request(f"r{index}", tokens, params))
    return requests
