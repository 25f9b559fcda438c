"""Numbers on the command line: whole ones, rates, durations; each refused in a line that names its flag."""

from __future__ import annotations

import math
import re

from tinycb.commands.errors import CommandError
from tinycb.config import DTYPES

__all__ = ["dtype_name", "duration", "positive", "whole"]


def whole(flag: str, text: str, least: int = 1, most: int | None = None) -> int:
    """An integer from `least` on."""
    wanted = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
    try:
        value = int(text)
    except ValueError:
        raise CommandError(f"{flag} must be {wanted}, not {text!r}") from None
    if value < least or (most is not None and value > most):
        raise CommandError(f"{flag} must be {wanted}, not {value}")
    return value


def positive(flag: str, text: str, most: float = math.inf) -> float:
    """A number above 0."""
    limit = f" of at most {most:g}" if most < math.inf else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most or math.isinf(value):
        raise CommandError(f"{flag} must be a positive number{limit}, not {text!r}")
    return value


def duration(flag: str, text: str) -> float:
    """Seconds in `50ms`, `1.5s` or `2`.

    >>> duration("--slo", "50ms"), duration("--slo", "2")
    (0.05, 2.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise CommandError(f"{flag} must be a time such as 50ms or 1.5s, not {text!r}")
    return float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}[match[2]]


def dtype_name(text: str) -> str:
    """`bf16` is `bfloat16`; "auto" is no size."""
    name = DTYPES.get(text.lower(), "auto")
    if name == "auto":
        raise CommandError(f"--dtype must be float32, bfloat16 or float16, not {text!r}")
    return name
