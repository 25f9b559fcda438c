"""Rotary position embeddings: a table of cosines and sines, and the rotation.

The frequencies of every `rope_type` but "default" come from transformers' own functions, imported only when
one is needed: importing transformers takes longer than loading a small model. Frequencies depend on the model
alone, never on the batch (`model_config.py` limits the length of the types for which they would).
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
from torch import Tensor

from tinycb.model.model_config import ModelConfig, ModelError

__all__ = ["RotaryTable", "inverse_frequencies", "rotate"]


def inverse_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """The D/2 frequencies in fp32, and the factor that cosines and sines are multiplied by."""
    rope_type = config.rope["rope_type"]
    if rope_type == "default":
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim  # (D/2,)
        return 1.0 / (float(config.rope["rope_theta"]) ** exponents), 1.0
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if rope_type not in ROPE_INIT_FUNCTIONS:
        known = ", ".join(["default", *ROPE_INIT_FUNCTIONS])
        raise ModelError(f"rope type {rope_type!r} is unknown; transformers knows {known}")
    stand_in = SimpleNamespace(
        rope_parameters=dict(config.rope),
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_heads,
        max_position_embeddings=config.max_position_embeddings,
        standardize_rope_params=lambda: None,  # done in model_config.py
    )
    try:
        frequencies, scaling = ROPE_INIT_FUNCTIONS[rope_type](stand_in, torch.device("cpu"))
    except KeyError as error:
        raise ModelError(f"config.json: rope type {rope_type!r} needs {error.args[0]!r}") from None
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ModelError(
            f"config.json: the numbers of rope type {rope_type!r} are no good: {error}"
        ) from None
    if not (torch.isfinite(frequencies).all() and math.isfinite(scaling)):
        raise ModelError(
            f"config.json: the numbers of rope type {rope_type!r} give frequencies that are not finite"
        )
    return frequencies.float(), float(scaling)


class RotaryTable:
    """cos and sin of every position, (positions, D/2), grown when a longer text comes.

    The angle is rounded to fp32 first, as transformers does; its cosine is taken in fp64 and rounded once,
    so a position has the same bits whenever its row is computed.
    """

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        self._frequencies, self._scaling = inverse_frequencies(config)
        self._device, self._dtype = device, dtype
        self._limit = config.max_model_len_limit
        self._cos = self._sin = torch.empty(0)

    def at(self, positions: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """cos and sin for positions (T,), all below `longest`: each (T, D/2)."""
        if longest > self._cos.shape[0]:
            self._grow(max(longest, min(2 * longest, self._limit)))
        return self._cos[positions], self._sin[positions]

    def _grow(self, length: int) -> None:
        angles = torch.arange(length, dtype=torch.float32).unsqueeze(1) * self._frequencies  # (length, D/2)
        exact = angles.double()
        self._cos = (exact.cos().float() * self._scaling).to(self._device, self._dtype)
        self._sin = (exact.sin().float() * self._scaling).to(self._device, self._dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head: x (T, heads, D), cos and sin (T, D/2) → (T, heads, D)."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (T, 1, D/2)
    first, second = x.chunk(2, dim=-1)  # (T, heads, D/2) each
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
