"""What the flags of `--engine vllm` come to: which vLLM, which model, which settings, and what is left out.

Next: `vllm_process.py`, which runs a job with them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import EXIT_FAILED, CommandError, one_line

if TYPE_CHECKING:
    from tinycb.adapters.vllm_settings import Installation
    from tinycb.config import EngineConfig

__all__ = ["VllmPlan", "add_vllm_flags", "check_vllm_flags", "plan_for_vllm"]

_PASSED_ON = {
    "tensor_parallel_size": ("N", "GPUs that each layer is split over"),
    "pipeline_parallel_size": ("N", "groups of layers, each on GPUs of its own"),
    "distributed_executor_backend": ("NAME", "mp, ray, …: how vLLM reaches them"),
}
_BACKENDS = ("mp", "ray", "uni", "external_launcher")


@dataclass(frozen=True, slots=True)
class VllmPlan:
    """model: a folder or a hub id. arguments: of `vllm.LLM`, with those that are vLLM's alone."""

    vllm: Installation
    model: str
    config: EngineConfig
    arguments: dict[str, Any]

    @property
    def num_workers(self) -> int:
        sizes = (self.arguments.get(name, 1) for name in ("tensor_parallel_size", "pipeline_parallel_size"))
        one, other = sizes
        return int(one * other)


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


def plan_for_vllm(command: str, args: argparse.Namespace, config: EngineConfig) -> VllmPlan:
    """Check the flags, find vLLM, and say on stderr what is not as asked. Raises CommandError."""
    from tinycb.adapters import vllm_settings
    from tinycb.commands.flags import flag_message

    passed_on, model = _passed_on(args), _model(args.model)
    try:
        vllm = vllm_settings.find()
    except ValueError as error:
        raise CommandError(one_line(error), EXIT_FAILED) from None
    if vllm.is_cpu and args.block_size is None:
        config = replace(config, block_size=vllm_settings.CPU_BLOCK)
    if not args.quiet:
        for line in _remarks(args, config, vllm):
            print(f"tinycb {command}: {line}", file=sys.stderr, flush=True)
    try:
        arguments = vllm_settings.vllm_arguments(config, is_cpu=vllm.is_cpu)
    except ValueError as error:
        raise CommandError(flag_message(error)) from None
    if vllm.is_cpu:
        arguments["enforce_eager"] = True  # compiling takes longer than a short run
    return VllmPlan(vllm, model, config, arguments | passed_on)


def _passed_on(args: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in _PASSED_ON:
        text = getattr(args, name)
        if text is None:
            continue
        flag = "--" + name.replace("_", "-")
        if not name.endswith("_size"):
            if text not in _BACKENDS and "." not in text:
                known = ", ".join(_BACKENDS)
                raise CommandError(
                    f"{flag} must be one of {known}, or a class as package.Class, not {text!r}"
                )
            values[name] = text
        elif text.isascii() and text.isdecimal() and int(text):
            values[name] = int(text)
        else:
            raise CommandError(f"{flag} must be a positive whole number, not {text!r}")
    return values


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


def _remarks(args: argparse.Namespace, config: EngineConfig, vllm: Installation) -> list[str]:
    """What is not as asked, or has no counterpart."""
    from tinycb.adapters.vllm_settings import unmapped

    lines = [vllm.remark] if vllm.remark else []
    if vllm.is_cpu and args.block_size is None:
        lines.append(
            f"vLLM's CPU build wants blocks of a multiple of 32 tokens: --block-size {config.block_size}"
        )
    names = ", ".join("--" + name.replace("_", "-") for name in unmapped(config))
    if names:
        lines.append(f"vLLM has no counterpart of {names}: left out")
    return lines
