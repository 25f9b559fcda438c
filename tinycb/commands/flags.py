"""The command line's flags, and how they become `EngineConfig` and `SamplingParams`.

A flag is checked where its field is checked, in those two classes, and nowhere else; here the field's name in
the message becomes the flag's. argparse's own complaints become one line too.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NoReturn

from tinycb.commands.errors import CommandError
from tinycb.config import EngineConfig
from tinycb.request import SamplingParams

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "ENGINE_FLAGS",
    "OneLineParser",
    "add_engine_flags",
    "add_sampling_flags",
    "engine_config",
    "engine_values",
    "flag_message",
    "sampling_values",
]

DEFAULT_MAX_TOKENS = 64  # the library's 16 is short for somebody who reads the answer

_ENGINE_HELP = {
    "batching": ("POLICY", "static, continuous or chunked"),
    "attention": ("PATH", "mask, varlen or paged: how a query finds its keys"),
    "backend": ("NAME", "of the kernels: auto, triton, numba or torch"),
    "dtype": ("TYPE", "auto, float32, bfloat16 or float16"),
    "device": ("DEVICE", "auto, cpu, cuda or cuda:N"),
    "block_size": ("N", "tokens in a block of the KV cache"),
    "num_blocks": ("N", "blocks in the pool; default: as many as --kv-cache-memory holds"),
    "kv_cache_memory": ("SIZE", "such as 512MiB"),
    "max_num_batched_tokens": ("N", "token budget of a step (chunked)"),
    "max_num_seqs": ("N", "requests that run at once"),
    "max_model_len": ("N", "tokens a request may have, prompt and output; default: the model's own"),
}
ENGINE_FLAGS = tuple(_ENGINE_HELP)
_SAMPLING_HELP = {
    "max_tokens": ("N", "tokens of output at most"),
    "temperature": ("X", "0 takes the likeliest token"),
    "top_k": ("N", "keep the N likeliest tokens; 0 keeps all"),
    "top_p": ("X", "keep the likeliest tokens that make up X of the mass"),
    "seed": ("N", "of a request's own random numbers"),
}


class OneLineParser(argparse.ArgumentParser):
    """argparse without the usage lines: what is wrong is one line, with the nearest right flag."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Prompts may stand anywhere among the flags; what follows -- is a prompt whatever it looks like."""
        many = self._many()
        if many is None or "--" not in arguments:
            return self.parse_intermixed_args(arguments)
        at = list(arguments).index("--")
        args = self.parse_intermixed_args(arguments[:at])
        setattr(args, many.dest, [*getattr(args, many.dest), *arguments[at + 1 :]])
        return args

    def _many(self) -> argparse.Action | None:
        """The argument that takes any number of values."""
        return next((a for a in self._actions if not a.option_strings and a.nargs == "*"), None)

    def error(self, message: str) -> NoReturn:
        message = message.replace("argument ", "", 1) if message.startswith("argument ") else message
        if message.startswith("unrecognized arguments: "):
            unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0]
            known = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(unknown.split("=")[0], known, 1)
            hint = f"did you mean {near[0]}?" if near else f"{self.prog} --help lists what there is"
            if self._many() is not None and not unknown.startswith("--"):
                hint = "a prompt that begins with - goes after --"
            message = f"there is no {unknown}; {hint}"
        raise CommandError(message.replace(": expected one argument", " needs a value after it"))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def add_engine_flags(
    parser: argparse.ArgumentParser,
    names: Sequence[str] = ENGINE_FLAGS,
    *,
    title: str = "engine",
    computed: Sequence[str] = (),
) -> argparse._ArgumentGroup:
    """A flag for each knob of the engine that makes sense on a command line, in the group that is returned.

    names: those there are to be. computed: those whose default is worked out, so that none is printed.
    """
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    group = parser.add_argument_group(title)
    for name in names:
        metavar, text = _ENGINE_HELP[name]
        if name in computed:
            text = text.partition("; default:")[0]
        elif defaults[name] is not None:
            text += f" (default: {defaults[name]})"
        group.add_argument(_flag(name), metavar=metavar, help=text)
    group.add_argument("--no-prefix-caching", action="store_true", help="share no blocks of equal prefixes")
    return group


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Flags for what a request may ask for; a line of a JSONL file of prompts overrides them."""
    defaults: dict[str, Any] = {field.name: field.default for field in fields(SamplingParams)}
    defaults["max_tokens"] = DEFAULT_MAX_TOKENS
    group = parser.add_argument_group("sampling")
    for name, (metavar, text) in _SAMPLING_HELP.items():
        default = f" (default: {defaults[name]})" if defaults[name] is not None else ""
        group.add_argument(_flag(name), metavar=metavar, help=text + default)
    group.add_argument("--stop", metavar="TEXT", action="append", help="end before TEXT; may be repeated")


def engine_values(args: argparse.Namespace, names: Sequence[str] = ENGINE_FLAGS) -> dict[str, Any]:
    """What was given of the engine's flags, unchecked."""
    values: dict[str, Any] = {}
    for name in names:
        text = getattr(args, name)
        if text is not None:
            values[name] = text if _is_text(EngineConfig, name) else _number(text)
    values["prefix_caching"] = not args.no_prefix_caching
    return values


def engine_config(
    args: argparse.Namespace, names: Sequence[str] = ENGINE_FLAGS, **fixed: Any
) -> EngineConfig:
    """The configuration that the flags ask for. fixed: fields that are not the user's to choose."""
    try:
        return EngineConfig(**{**engine_values(args, names), **fixed})
    except ValueError as error:
        raise CommandError(flag_message(error)) from None


def sampling_values(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say of sampling, checked: the defaults of every request of the run."""
    values: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
    for name in _SAMPLING_HELP:
        if getattr(args, name) is not None:
            values[name] = _number(getattr(args, name))
    if args.stop is not None:
        values["stop"] = tuple(args.stop)
    try:
        SamplingParams(**values)
    except ValueError as error:
        raise CommandError(flag_message(error)) from None
    return values


def flag_message(error: ValueError | str) -> str:
    """A message that names a field, with the flag's name instead.

    >>> flag_message("block_size must be an integer from 1 to 1024, not 0")
    '--block-size must be an integer from 1 to 1024, not 0'
    >>> flag_message("num_blocks=9 is more than the 4 there is room for")
    '--num-blocks 9 is more than the 4 there is room for'
    """
    message = str(error)
    for name in sorted({*_ENGINE_HELP, *_SAMPLING_HELP, "stop"}, key=len, reverse=True):
        message = re.sub(rf"\b{name} (?=must |is )", f"{_flag(name)} ", message)
        message = re.sub(rf"\b{name}=(?=\S)", f"{_flag(name)} ", message)
    for words in (" or None", " None or", " or a Scheduler class"):
        message = message.replace(words, "")
    return message


def _is_text(config: type, name: str) -> bool:
    """Whether a field holds text, so that a number given for it is not turned into one."""
    return next(field.type for field in fields(config) if field.name == name) in (
        "str",
        "str | type",
        "str | int",
    )


def _number(text: str) -> int | float | str:
    """The number that a text spells, or the text itself, for the field's own check to complain about."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
