"""How many bytes a model and its KV cache take: arithmetic only, no torch.

    one token's K and V     2 · L · KH · D · bytes per element        SmolLM2 in fp32: 2·30·3·64·4 = 46,080
    one block               block_size tokens of that
    num_blocks              kv_cache_memory // bytes per block

Does not look at the machine: `model/kv_cache.py` asks how much memory there is before it allocates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = [
    "DTYPE_BYTES",
    "LlamaShape",
    "kv_bytes_per_token",
    "num_blocks_for",
    "num_parameters",
    "weight_bytes",
]

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


class LlamaShape(Protocol):
    """The sizes that memory depends on; `tinycb.model.model_config.ModelConfig` has them."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def tie_word_embeddings(self) -> bool: ...
    @property
    def attention_bias(self) -> bool: ...
    @property
    def mlp_bias(self) -> bool: ...


def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, dtype: str = "float32") -> int:
    """Bytes that one token's keys and values take over all layers.

    >>> kv_bytes_per_token(30, 3, 64)
    46080
    """
    return 2 * num_layers * num_kv_heads * head_dim * _itemsize(dtype)


def num_blocks_for(kv_cache_memory: int, block_size: int, bytes_per_token: int) -> int:
    """Whole blocks that fit in `kv_cache_memory` bytes. Raises ValueError if not even one does.

    >>> num_blocks_for(512 * 1024**2, 16, 46080)
    728
    """
    block_bytes = block_size * bytes_per_token
    if kv_cache_memory < block_bytes:
        raise ValueError(
            f"kv_cache_memory={kv_cache_memory} bytes holds no block: one block of {block_size} tokens takes "
            f"{block_bytes} bytes"
        )
    return kv_cache_memory // block_bytes


def num_parameters(shape: LlamaShape) -> int:
    """Weights of a Llama, biases and norms included; a tied head counts once."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    attention = hidden * (q + 2 * kv) + q * hidden
    mlp = 3 * hidden * inner
    if shape.attention_bias:
        attention += q + 2 * kv + hidden
    if shape.mlp_bias:
        mlp += 2 * inner + hidden
    tables = 1 if shape.tie_word_embeddings else 2
    return tables * shape.vocab_size * hidden + shape.num_layers * (attention + mlp + 2 * hidden) + hidden


def weight_bytes(shape: LlamaShape, dtype: str = "float32") -> int:
    """Bytes of the weights in `dtype`."""
    return num_parameters(shape) * _itemsize(dtype)


def _itemsize(dtype: Any) -> int:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, not {dtype!r}")
    return DTYPE_BYTES[name]
