"""How many requests fit in memory, what a block size costs, and what a step must move and do."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from tinycb.commands.errors import EXIT_OK, CommandError, one_line

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb budget llama-3-8b --memory 80GiB --dtype bf16 --block-size 16 --context 4096
  tinycb budget ./config.json --memory 24GiB --max-num-seqs 64
  tinycb budget llama-3-8b --device h100 --context 2048

Bytes, blocks and requests are exact. With --device, the floor of a step's time is modelled from the device's
figures, whose source is printed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tinycb budget`."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="llama-3-8b, llama-3-70b, smollm2-135m, a config.json, or a folder that holds one",
    )
    parser.add_argument("--memory", metavar="SIZE", help="such as 80GiB; default: all of --device's")
    parser.add_argument(
        "--dtype", default="bf16", metavar="TYPE", help="of weights and cache (default: bf16)"
    )
    parser.add_argument("--block-size", default="16", metavar="N", help="tokens in a block (default: 16)")
    parser.add_argument("--context", metavar="N", help="tokens a request has; default: the model's limit")
    parser.add_argument("--max-num-seqs", metavar="N", help="requests that may run at once")
    parser.add_argument(
        "--device", metavar="NAME", help="a100, h100, h200, or cpu: model a step's time on it"
    )
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Compute and print. Raises CommandError for whatever does not fit."""
    from tinycb.commands.numbers import dtype_name, whole
    from tinycb.config import parse_bytes
    from tinycb.costs.devices import find_device
    from tinycb.costs.roofline import CostModel
    from tinycb.costs.shapes import load_shape
    from tinycb.memory import MemoryBudget

    dtype = dtype_name(args.dtype)
    block_size = whole("--block-size", args.block_size, most=1024)
    seqs = whole("--max-num-seqs", args.max_num_seqs) if args.max_num_seqs is not None else None
    if args.memory is None and args.device is None:
        raise CommandError("give --memory SIZE, such as 80GiB, or --device NAME")
    try:
        shape = load_shape(args.model)
        device = find_device(args.device) if args.device is not None else None
        cost = CostModel(shape, device, dtype) if device is not None else None
        memory = parse_bytes(args.memory, "--memory") if args.memory is not None else None
        if memory is None:
            assert device is not None
            memory = device.memory
        context = whole("--context", args.context) if args.context is not None else shape.max_model_len_limit
        budget = MemoryBudget.of(shape, memory, dtype, block_size)
    except (ValueError, OSError) as error:
        raise CommandError(
            f"{args.model}: {one_line(error)}" if "weights" in str(error) else one_line(error)
        ) from None
    if args.json:
        print(json.dumps(_as_json(budget, cost, context, seqs)))
    else:
        _print(args, budget, cost, shape, dtype, context, seqs)
    return EXIT_OK


def _decode_rows(budget: Any, context: int, seqs: int | None) -> list[int]:
    """One row, some, and as many as fit."""
    most = min(budget.requests_of(context), seqs or sys.maxsize)
    return sorted({n for n in (1, 8, 64) if n < most} | {most}) if most else [1]


def _print(
    args: argparse.Namespace, budget: Any, cost: Any, shape: Any, dtype: str, context: int, seqs: int | None
) -> None:
    from tinycb.commands.terminal import console
    from tinycb.view import budget as view

    out = console(sys.stdout)
    sizes = (shape.num_layers, shape.num_kv_heads, shape.head_dim)
    for line in view.budget_lines(budget, args.model, dtype, sizes):
        out.print(line)
    out.print()
    out.print(view.fit_table(budget, context, seqs))
    out.print()
    out.print(f"block sizes, for a request of {context:,} tokens, exact; the mean is over all lengths")
    out.print(view.blocks_table(budget, context))
    if cost is not None:
        out.print()
        for line in view.roofline_lines(cost):
            out.print(line, soft_wrap=True)
        out.print(view.roofline_table(cost, context, _decode_rows(budget, context, seqs), (512, context)))


def _as_json(budget: Any, cost: Any, context: int, seqs: int | None) -> dict[str, Any]:
    from tinycb.memory import block_size_cost

    values: dict[str, Any] = asdict(budget) | {
        "max_tokens": budget.max_tokens,
        "num_blocks": budget.num_blocks,
        "context": context,
        "requests": budget.requests_of(context),
        "block_sizes": [asdict(entry) for entry in block_size_cost(context)],
    }
    if cost is not None:
        steps = []
        for rows in _decode_rows(budget, context, seqs):
            work = cost.work([(1, context)] * rows)
            floor = cost.floor(work)
            steps.append(
                {"decodes": rows, **asdict(work), "seconds_modelled": floor.seconds, "bound": floor.bound}
            )
        values["device"] = {"name": cost.device.name, "source": cost.device.source, "ridge": cost.ridge}
        values["decode_steps"] = steps
    return values
