"""How many bytes a model and its KV cache take: arithmetic only, no torch.

    one token's K and V     2 · L · KH · D · bytes per element        SmolLM2 in fp32: 2·30·3·64·4 = 46,080
    one block               block_size tokens of that
    num_blocks              kv_cache_memory // bytes per block
    N_max                   (M - W) / k: tokens whose K and V fit beside the weights, of all requests

`MemoryBudget` is what `tinycb budget` prints. Does not look at the machine: `model/kv_cache.py` asks how much
memory there is before it allocates. Next: `costs/roofline.py`, what moving these bytes takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "DTYPE_BYTES",
    "BlockSizeCost",
    "LlamaShape",
    "MemoryBudget",
    "block_size_cost",
    "itemsize",
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
    return 2 * num_layers * num_kv_heads * head_dim * itemsize(dtype)


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
    return num_parameters(shape) * itemsize(dtype)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """How many tokens and requests fit beside a model's weights. Bytes and counts, all exact.

    memory: M, all bytes there are. weights: W. token_bytes: k, of one cached token. Raises ValueError where
    the weights, or the weights and one block, do not fit.
    """

    memory: int
    weights: int
    token_bytes: int
    block_size: int

    def __post_init__(self) -> None:
        if self.weights >= self.memory:
            raise ValueError(
                f"the weights take {self.weights:,} bytes ({self.weights / 2**30:.2f} GiB), and the memory "
                f"has {self.memory:,} ({self.memory / 2**30:.2f} GiB): nothing is left for a KV cache"
            )
        num_blocks_for(self.memory - self.weights, self.block_size, self.token_bytes)

    @classmethod
    def of(
        cls, shape: LlamaShape, memory: int, dtype: str = "bfloat16", block_size: int = 16
    ) -> MemoryBudget:
        """The budget of a model whose weights and cache are both kept in `dtype`."""
        token = kv_bytes_per_token(shape.num_layers, shape.num_kv_heads, shape.head_dim, dtype)
        return cls(memory, weight_bytes(shape, dtype), token, block_size)

    @property
    def max_tokens(self) -> int:
        """N_max = (M - W) / k, if blocks were one token long."""
        return (self.memory - self.weights) // self.token_bytes

    @property
    def num_blocks(self) -> int:
        return (self.memory - self.weights) // (self.block_size * self.token_bytes)

    def requests_of(self, length: int) -> int:
        """How many requests of `length` tokens, prompt and output, hold all their blocks at once."""
        return self.num_blocks // -(-length // self.block_size)


@dataclass(frozen=True, slots=True)
class BlockSizeCost:
    """What a block size costs for requests of one length.

    blocks: of one request. slack_tokens: slots of its last block that stay empty. mean_slack: the same on
    average over all lengths, (block_size - 1) / 2. table_bytes: its row of the block table, int32.
    """

    block_size: int
    blocks: int
    slack_tokens: int
    mean_slack: float
    table_bytes: int


def block_size_cost(length: int, block_sizes: Iterable[int] = (1, 8, 16, 32, 256)) -> list[BlockSizeCost]:
    """Small blocks waste few slots and need long tables; large ones the other way round.

    >>> [(c.block_size, c.slack_tokens, c.table_bytes) for c in block_size_cost(100, (1, 16, 256))]
    [(1, 0, 400), (16, 12, 28), (256, 156, 4)]
    """
    return [
        BlockSizeCost(size, blocks := -(-length // size), blocks * size - length, (size - 1) / 2, 4 * blocks)
        for size in block_sizes
    ]


def itemsize(dtype: Any) -> int:
    """Bytes of one number. Raises ValueError for a dtype that no model here is kept in."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, not {dtype!r}")
    return DTYPE_BYTES[name]
