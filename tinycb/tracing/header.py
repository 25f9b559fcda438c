"""The first line of a trace: which format, which model, which configuration, and where the formulas are.

Knows nothing of steps. Next: `codec.py` for the other lines.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tinycb.config import EngineConfig
from tinycb.tracing.codec import TraceError

__all__ = [
    "FORMAT", "VERSIONS",
    "check_header", "code_sources", "config_from_header", "config_or_similar", "make_header",
]  # fmt: skip

FORMAT = "tinycb-trace"
VERSIONS = (1,)  # those that this reader knows; the last is written

# What the screen shows, and where it is computed: package, file, function, and a text in the line itself.
_FORMULAS = {
    "slot_mapping": ("tinycb", "packing.py", "pack", "slot_mapping[real] = "),
    "query_start_loc": ("tinycb", "packing.py", "pack", "np.cumsum(lengths"),
    "block_table": ("tinycb", "packing.py", "pack", "block_table[r, "),
    "blocks": ("tinycb", "scheduling/block_pool.py", "allocate", "def allocate"),
    "mask": ("tinycb_kernels", "mask.py", "causal_mask", "return same_request"),
}


def make_header(
    config: EngineConfig, *, model: str, eos_token_ids: Collection[int] = (), **extra: Any
) -> dict[str, Any]:
    """The header of a run that starts now. config: resolved, with `num_blocks` and `max_model_len` set.

    extra: further keys, kept as they are.
    """
    return {
        "format": FORMAT,
        "version": VERSIONS[-1],
        "tinycb": _version(),
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "model": model,
        "config": config.to_dict(),
        "block_size": config.block_size,
        "num_blocks": config.num_blocks,
        "eos_token_ids": sorted(eos_token_ids),
        "sources": code_sources(),
        **extra,
    }


def check_header(header: Mapping[str, Any], path: Path) -> None:
    """Raises TraceError, in one line, if the file is no trace or of a version that is not known here."""
    if header.get("format") != FORMAT:
        raise TraceError(f'{path} is not a trace: its first line has no "format": "{FORMAT}"')
    if header.get("version") not in VERSIONS:
        known = ", ".join(map(str, VERSIONS))
        raise TraceError(
            f"{path} has trace version {header.get('version')!r}; the versions known here are {known}"
        )
    for name in ("block_size", "num_blocks", "keyframe_every"):
        value = header.get(name, 1 if name == "keyframe_every" else None)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TraceError(f"{path}: the header's {name} is {value!r}, not a positive integer")
    if not isinstance(header.get("config"), dict):
        raise TraceError(f"{path}: the header's config is {header.get('config')!r:.80}, not an object")
    eos = header.get("eos_token_ids", [])
    if not isinstance(eos, list) or not all(isinstance(token, int) for token in eos):
        raise TraceError(f"{path}: the header's eos_token_ids is {eos!r:.80}, not a list of integers")


def config_from_header(header: Mapping[str, Any]) -> EngineConfig:
    """The configuration of the recorded run. A scheduler class of one's own is imported under its name.

    Raises ValueError if a value is none that this version takes, or the class cannot be found.
    """
    known = {f.name for f in fields(EngineConfig)}
    values = {name: value for name, value in header["config"].items() if name in known}
    batching = values.get("batching")
    if isinstance(batching, str) and ":" in batching:
        values["batching"] = _find_class(batching)
    return EngineConfig(**values)


def config_or_similar(header: Mapping[str, Any]) -> EngineConfig:
    """The configuration, to count with; where its scheduler class cannot be imported, with a built-in one."""
    try:
        return config_from_header(header)
    except ValueError:
        return config_from_header({**header, "config": {**header["config"], "batching": "continuous"}})


def code_sources() -> dict[str, str]:
    """name → "package/file:line" of the line that computes it, looked up in the source itself."""
    found = {}
    for name, (package, file, function, text) in _FORMULAS.items():
        line = _line_of(package, file, function, text)
        if line is not None:
            found[name] = f"{package}/{file}:{line}"
    return found


def _line_of(package: str, file: str, function: str, text: str) -> int | None:
    """Finds a package without importing it: the kernels need torch, and a trace does not."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder, file)
        if not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name == function:
                end = node.end_lineno or node.lineno
                lines = source.splitlines()[node.lineno - 1 : end]
                return next((node.lineno + i for i, line in enumerate(lines) if text in line), node.lineno)
    return None


def _find_class(name: str) -> type:
    module, _, qualname = name.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in qualname.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the scheduler class {name!r} cannot be imported ({error})") from None
    if not isinstance(value, type):
        raise ValueError(f"the scheduler {name!r} is not a class")
    return value


def _version() -> str:
    try:
        return importlib.metadata.version("tinycb")
    except importlib.metadata.PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
