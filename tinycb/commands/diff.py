"""Compare two traces step by step: ours and vLLM's, or any two."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import EXIT_FAILED, EXIT_OK, CommandError, one_line

if TYPE_CHECKING:
    from tinycb.tracing.diff import Comparison, Parting

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
examples:
  tinycb run --block-size 32 --trace ours.jsonl --prompts prompts.txt
  tinycb run --engine vllm --block-size 32 --trace theirs.jsonl --prompts prompts.txt
  tinycb diff ours.jsonl theirs.jsonl
  tinycb tui --compare ours.jsonl theirs.jsonl

exit code: 0 if every step and token is the same, 1 if they part, 2 if a trace cannot be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tinycb diff`."""
    parser.add_argument("left", metavar="A.jsonl")
    parser.add_argument("right", metavar="B.jsonl")
    parser.add_argument(
        "--blocks",
        choices=("renamed", "exact", "ignore"),
        default="renamed",
        help="compare block tables up to renaming, by number, or not at all (default: %(default)s)",
    )
    parser.add_argument(
        "--reasons", action="store_true", help="the reasons must be the same too, where both state one"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Compare, and say what came of it."""
    from tinycb.tracing.diff import compare, config_differences
    from tinycb.tracing.reader import TraceReader

    try:
        with TraceReader(args.left) as left, TraceReader(args.right) as right:
            more = right.num_blocks - left.num_blocks
            result = compare(left, right, blocks=args.blocks, reasons=args.reasons, more_blocks=more)
            headers = left.header, right.header
            lengths = len(left), len(right)
            settings = config_differences(*headers)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(error)) from None
    if args.json:
        print(json.dumps(_as_json(result, settings)))
        return EXIT_OK if result.is_equal else EXIT_FAILED
    for name, path, header, length in zip("AB", (args.left, args.right), headers, lengths, strict=True):
        print(f"{name}  {path}: {_engine(header)}, {length} steps")
    for name, (one, other) in settings.items():
        print(f"   {name} differs: {one} in A, {other} in B")
    if result.renamed_requests:
        print("   requests have other ids in B: matched by the order in which the same prompts arrived")
    print(_verdict(result, args.blocks))
    if result.parting is not None:
        _print_parting(result.parting)
    print(_tokens(result))
    return EXIT_OK if result.is_equal else EXIT_FAILED


def _engine(header: dict[str, Any]) -> str:
    if header.get("engine") == "vllm":
        about = header.get("vllm", {})
        kind = ", asynchronous" if about.get("async_scheduling") else ""
        return f"vLLM {about.get('version', '')}{kind}"
    return f"tinycb {header.get('tinycb', '')}, {header['config'].get('batching')}"


def _verdict(result: Comparison, blocks: str) -> str:
    words = {"renamed": "block tables up to renaming", "exact": "block tables by number"}
    tables = f", {words[blocks]}" if blocks in words else ""
    if result.parting is None:
        return f"the same decisions in all {result.steps} steps{tables}"
    if result.parting.index == 0:
        return "they part in the first step"
    return f"the same decisions in the first {result.steps} steps{tables}; then they part"


def _print_parting(parting: Parting) -> None:
    for side, name in enumerate("AB"):
        record = parting.records[side]
        if record is None:
            print(f"{name}  is over")
            continue
        print(f"{name}  step {record.step}, {parting.field}: {_shown(parting.values[side])}")
        for sentence in parting.decisions(side) or ["nothing that needs a reason"]:
            print(f"     {sentence}")


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        value = dict(value) if len(value[0]) == 2 else value
    text = str(value)
    return text if len(text) <= 300 else text[:298] + " …"


def _tokens(result: Comparison) -> str:
    found = result.token_difference
    up_to = "" if result.parting is None else " up to there"
    if found is None:
        return f"the same {result.num_tokens} tokens of {len(result.requests)} requests{up_to}"
    return (
        f"tokens differ: output token {found.place} of {found.request_id} is {found.tokens[0]} in A and "
        f"{found.tokens[1]} in B, in step {found.index} from the first"
    )


def _as_json(result: Comparison, settings: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    parting, tokens = result.parting, result.token_difference
    return {
        "equal": result.is_equal,
        "equal_steps": result.steps,
        "settings": settings,
        "parting": parting
        and {
            "index": parting.index,
            "field": parting.field,
            "values": parting.values,
            "decisions": [parting.decisions(0), parting.decisions(1)],
        },
        "num_tokens": result.num_tokens,
        "token_difference": tokens
        and {"request_id": tokens.request_id, "place": tokens.place, "tokens": tokens.tokens},
    }
