"""What a Llama's `config.json` says, checked: sizes, RoPE, end-of-sequence ids, and how long a text may be.

Reads the names of transformers 5 (`rope_parameters`) and the older ones (`rope_scaling`, `rope_theta`).
Does not read weights (`checkpoint.py`) and needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModelConfig", "ModelError"]


class ModelError(ValueError):
    """A model that cannot be found, read or run. One line: the thing, and what would be right."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of one Llama. Letters as in the shape comments: V, E, L, H, KH, D.

    rope: `rope_type`, `rope_theta` and whatever else the type needs, under transformers' names.
    max_model_len_limit: the longest text the model may serve; `limit_reason` says where that comes from.
    """

    vocab_size: int  # V
    hidden_size: int  # E
    intermediate_size: int
    num_layers: int  # L
    num_heads: int  # H
    num_kv_heads: int  # KH
    head_dim: int  # D
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    eos_token_ids: tuple[int, ...]
    rope: Mapping[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
        """From a parsed `config.json` and, where there is one, `generation_config.json`.

        Raises ModelError for another architecture, a quantized checkpoint, another activation, or sizes
        that do not fit together.
        """
        _check_architecture(raw)
        quantized = raw.get("quantization_config")
        if quantized:
            method = quantized.get("quant_method") if isinstance(quantized, dict) else None
            method = method or "an unnamed method"
            raise ModelError(f"the weights are quantized ({method}); use a checkpoint in fp32, bf16 or fp16")
        if raw.get("hidden_act", "silu") not in ("silu", "swish"):
            raise ModelError(f"hidden_act {raw['hidden_act']!r} is not supported; a Llama uses 'silu'")
        hidden, heads = _size(raw, "hidden_size"), _size(raw, "num_attention_heads")
        kv_heads = _size(raw, "num_key_value_heads", heads)
        head_dim = _size(raw, "head_dim", hidden // heads)
        if heads % kv_heads:
            raise ModelError(
                f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
            )
        if head_dim % 2:
            raise ModelError(f"head_dim {head_dim} is odd; rotary embeddings need an even one")
        max_positions = _size(raw, "max_position_embeddings", 2048)
        vocab = _size(raw, "vocab_size")
        return cls(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=_size(raw, "intermediate_size"),
            num_layers=_size(raw, "num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            rms_norm_eps=_positive("rms_norm_eps", raw.get("rms_norm_eps", 1e-6)),
            max_position_embeddings=max_positions,
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            attention_bias=bool(raw.get("attention_bias", False)),
            mlp_bias=bool(raw.get("mlp_bias", False)),
            eos_token_ids=tuple(i for i in _eos_ids(generation) or _eos_ids(raw) if 0 <= i < vocab),
            rope=_rope(raw, max_positions),
        )

    @property
    def max_model_len_limit(self) -> int:
        """The longest text this model may serve: its positions, or its original ones under longrope."""
        if self.rope["rope_type"] == "longrope":
            return min(self.max_position_embeddings, int(self.rope["original_max_position_embeddings"]))
        return self.max_position_embeddings

    @property
    def limit_reason(self) -> str:
        """Why `max_model_len` may not be larger, as the end of a sentence."""
        if self.rope["rope_type"] in ("dynamic", "longrope"):
            return (
                f"beyond its original {self.max_model_len_limit} positions, rope type "
                f"{self.rope['rope_type']!r} makes every answer depend on the longest text in the batch"
            )
        return f"the model has {self.max_position_embeddings} positions (max_position_embeddings)"


def _check_architecture(raw: Mapping[str, Any]) -> None:
    names = raw.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"config.json: architectures must be a list of names, not {names!r:.80}")
    model_type = raw.get("model_type")
    wrong = [name for name in names if name != "LlamaForCausalLM"] or (not names and model_type != "llama")
    if wrong:
        found = ", ".join(names) or model_type or "none (config.json names no architecture)"
        raise ModelError(f"architecture {found} is not supported; tinycb runs LlamaForCausalLM")


def _size(raw: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"config.json: {name} must be a positive integer, not {value!r}")
    return value


def _eos_ids(raw: Mapping[str, Any] | None) -> tuple[int, ...]:
    ids = (raw or {}).get("eos_token_id")
    ids = [] if ids is None else ids if isinstance(ids, list) else [ids]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ModelError(f"eos_token_id must be an integer, a list of them or null, not {ids!r:.80}")
    return tuple(ids)


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise ModelError(f"config.json: {name} must be a positive number, not {value!r:.80}")
    return float(value)


def _rope(raw: Mapping[str, Any], max_positions: int) -> dict[str, Any]:
    """One flat dict with `rope_type` and `rope_theta`, whichever names the file used."""
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        raise ModelError(f"config.json: rope_parameters must be an object, not {given!r:.80}")
    rope = dict(given)
    rope["rope_type"] = rope_type = rope.get("rope_type") or rope.pop("type", None) or "default"
    if not isinstance(rope_type, str):
        raise ModelError(f"config.json: rope_type must be a name, not {rope_type!r:.80}")
    rope.setdefault("rope_theta", raw.get("rope_theta") or 10000.0)
    rope["rope_theta"] = _positive("rope_theta", rope["rope_theta"])
    if rope.get("partial_rotary_factor", raw.get("partial_rotary_factor")) not in (None, 1, 1.0):
        raise ModelError("partial_rotary_factor is not supported; a Llama rotates whole heads")
    if rope_type in ("llama3", "yarn", "longrope"):
        outer = raw.get("original_max_position_embeddings")
        if outer is not None:
            rope["original_max_position_embeddings"] = outer
        rope.setdefault("original_max_position_embeddings", max_positions)
        _size(rope, "original_max_position_embeddings")
    return rope
