"""transformers' own Llama with a chapter's weights: what its answers are compared with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from tinycb.model.checkpoint import locate
from tinycb.model.tiny_random import TINY_CONFIG, TinyWeights

if TYPE_CHECKING:
    from tinycb.model.llama import Llama

__all__ = ["reference_model"]


def reference_model(name: str, ours: Llama) -> Any:
    """A `LlamaForCausalLM` with the weights of the model called `name`, on device and in dtype of `ours`.

    Raises ModelError if there is no such model.
    """
    with _quiet():
        from transformers import LlamaConfig, LlamaForCausalLM

        if name != "tiny-random":
            folder, _ = locate(name, lambda message: None)
            model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=ours.dtype)
            return model.to(ours.device).eval()
        c = TINY_CONFIG
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=c.vocab_size,
                hidden_size=c.hidden_size,
                intermediate_size=c.intermediate_size,
                num_hidden_layers=c.num_layers,
                num_attention_heads=c.num_heads,
                num_key_value_heads=c.num_kv_heads,
                head_dim=c.head_dim,
                rms_norm_eps=c.rms_norm_eps,
                max_position_embeddings=c.max_position_embeddings,
                rope_parameters=dict(c.rope),
                tie_word_embeddings=c.tie_word_embeddings,
                attention_bias=c.attention_bias,
                mlp_bias=c.mlp_bias,
                bos_token_id=None,
                eos_token_id=list(c.eos_token_ids),
            )
        )
    weights = TinyWeights()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            drawn = weights.get(parameter_name, tuple(parameter.shape), parameter.device, parameter.dtype)
            parameter.copy_(drawn)
    return model.to(ours.device, ours.dtype).eval()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers without its progress bars and warnings, which it writes to stderr."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield
