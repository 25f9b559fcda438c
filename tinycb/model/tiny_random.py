"""`tiny-random`: a seeded random Llama of a few hundred kB, for tests and first steps without a download.

Its numbers come from Philox's raw bits, whose stream numpy keeps stable, by exact arithmetic: the same model
on every machine and with every version. It says nothing sensible. It is wide enough that greedy outputs vary,
and small enough that a test can run hundreds of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tinycb.model.model_config import ModelConfig

__all__ = ["TINY_CONFIG", "TinyWeights"]

TINY_CONFIG = ModelConfig(
    vocab_size=256,
    hidden_size=96,
    intermediate_size=192,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    attention_bias=False,
    mlp_bias=False,
    eos_token_ids=(0,),
)
SEED = 20240613


class TinyWeights:
    """Draws each tensor when it is asked for. The stream of one depends on its name alone."""

    def get(self, name: str, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, device=device, dtype=dtype)
        key = SEED + sum(byte << 8 * (i % 7) for i, byte in enumerate(name.encode()))
        raw = np.random.Philox(key=key).random_raw(int(np.prod(shape)))
        unit = (raw >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)  # [-1, 1)
        scale = np.float32(1.0 if "embed" in name else 0.25)
        return torch.from_numpy((unit * scale).reshape(shape)).to(device, dtype)
