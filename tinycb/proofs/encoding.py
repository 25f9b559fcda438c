"""Examples as JSON and back: for files, and for the pipe to the process that runs the code under test.

Next: `replay.py`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from tinycb.proofs.strategies import CacheWrite, KVLayout, RaggedBatch, Varied

__all__ = ["decode", "encode"]

TYPES: dict[str, Any] = {cls.__name__: cls for cls in (RaggedBatch, KVLayout, Varied, CacheWrite)}


def encode(example: Any) -> Any:
    """An example as JSON can hold it."""
    if hasattr(example, "to_dict"):
        return {"type": type(example).__name__, **example.to_dict()}
    if is_dataclass(example) and not isinstance(example, type):
        values = {field.name: encode(getattr(example, field.name)) for field in fields(example)}
        return {"type": type(example).__name__, **values}
    return [encode(item) for item in example] if isinstance(example, tuple | list) else example


def decode(values: Any) -> Any:
    """What `encode` was given. Raises ValueError if it is not an example."""
    if isinstance(values, list):
        return tuple(decode(item) for item in values)
    if not isinstance(values, dict):
        return values
    plain = {name: value for name, value in values.items() if name != "type"}
    try:
        if values.get("type") == "Serving":
            from tinycb.proofs.workloads import Serving

            return Serving.from_dict(plain)
        return TYPES[values.get("type", "")](**{name: decode(value) for name, value in plain.items()})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an example: {type(error).__name__} {error}") from None
