"""Every knob of the engine, its unit, and its check.

Nothing here needs torch; what depends on the model (dtype "auto", `num_blocks` from memory) is resolved when
an engine is made. Next: `engine.py`, which uses it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["EngineConfig", "parse_bytes"]

BATCHING = ("static", "continuous", "chunked")
ATTENTION = ("mask", "varlen", "paged")
BACKENDS = ("auto", "triton", "numba", "torch")
DTYPES = {
    "auto": "auto",
    "float32": "float32",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
}
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS |= {_letter: 1000**_power, f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power}


def parse_bytes(size: str | int, name: str = "size") -> int:
    """Bytes in `"512MiB"`, `"1.5 GB"` or `4096`. Raises ValueError that names `name`.

    >>> parse_bytes("2KiB"), parse_bytes("2kB"), parse_bytes(7)
    (2048, 2000, 7)
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if match and match[2].lower() in _UNITS:
            result = float(match[1]) * _UNITS[match[2].lower()]
            if 1 <= result < math.inf:
                return int(result)
    raise ValueError(f'{name} must be a positive size such as "512MiB" or a number of bytes, not {size!r}')


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How an engine batches, attends and spends memory. Raises ValueError, naming the field.

    batching: "static", "continuous", "chunked", or a Scheduler class of one's own.
    attention: "mask", "varlen" or "paged": how a query finds its keys.
    backend: of the kernels: "auto" (Triton on a GPU, Numba on a CPU), "triton", "numba" or "torch".
    block_size: tokens in a block of the KV cache, 1 to 1024.
    num_blocks: blocks in the pool. None: as many as `kv_cache_memory` holds; without a model, 1024.
    kv_cache_memory: bytes, or a size such as "512MiB".
    max_num_batched_tokens: the token budget of a step (chunked). max_num_seqs: requests that run at once.
    max_model_len: tokens a request may have, prompt and output. None: the model's own limit; without a
        model, num_blocks * block_size.
    prefix_caching: share full blocks of equal prefixes.
    reserve_full_prompt: admit a request only if blocks for all its tokens are free, not only for its chunk.
    device: "auto", "cpu", "cuda", "cuda:1", …
    dtype: "auto" (what the weights are stored in on a GPU, float32 on a CPU), "float32", "bfloat16",
        "float16" or a short form.
    check: verify every invariant after every step.
    """

    batching: str | type = "chunked"
    attention: str = "paged"
    backend: str = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_memory: str | int = "512MiB"
    max_num_batched_tokens: int = 256
    max_num_seqs: int = 16
    max_model_len: int | None = None
    prefix_caching: bool = True
    reserve_full_prompt: bool = True
    device: str = "auto"
    dtype: str = "auto"
    check: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.batching, type) and callable(getattr(self.batching, "schedule", None))):
            _check_choice("batching", self.batching, BATCHING, " or a Scheduler class")
        _check_choice("attention", self.attention, ATTENTION)
        _check_choice("backend", self.backend, BACKENDS)
        _check_range("block_size", self.block_size, 1, 1024)
        _check_range("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        _check_range("max_num_seqs", self.max_num_seqs, 1)
        for name in ("num_blocks", "max_model_len"):
            if getattr(self, name) is not None:
                _check_range(name, getattr(self, name), 1, suffix=" or None")
        parse_bytes(self.kv_cache_memory, "kv_cache_memory")
        for name in ("prefix_caching", "reserve_full_prompt", "check"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if not isinstance(self.device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ValueError(f'device must be "auto", "cpu", "cuda" or "cuda:N", not {self.device!r}')
        dtype = str(self.dtype).removeprefix("torch.").lower()
        if dtype not in DTYPES:
            _check_choice("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        object.__setattr__(self, "dtype", DTYPES[dtype])

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them: a scheduler class becomes its name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if isinstance(self.batching, type):
            values["batching"] = f"{self.batching.__module__}:{self.batching.__qualname__}"
        return values


def _check_choice(name: str, value: Any, choices: tuple[str, ...], suffix: str = "") -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}{suffix}, not {value!r}")


def _check_range(name: str, value: Any, low: int, high: int | None = None, suffix: str = "") -> None:
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
    if not ok or (high is not None and value > high):
        wanted = f"an integer from {low} to {high}" if high else f"an integer of at least {low}"
        raise ValueError(f"{name} must be {wanted}{suffix}, not {value!r}")
