"""The runner: one forward of a Llama over packed rows of many requests.

    token_ids (T,) ─ embed ─▶ x (T, E) ─ layer ─ … ─ layer ─▶ x (sampling rows, E) ─ norm ─ head ─▶ logits

    layer:   x ─┬─ norm ─ QKV ─ rope ─ attention ─ O ─(+)─┬─ norm ─ gate, up ─ silu·up ─ down ─(+)─▶ x
                └─────────────────────────────────────▲   └───────────────────────────────────▲

Nothing here knows which token belongs to whom: positions and `AttentionMetadata` say it. Q, K and V are one
product, gate and up another. From the last layer's attention on, only rows whose token is wanted are there.

Norm and product are one call, as are gate, product and residual (`linear.py`); the picture shows the parts.
On a CPU the arithmetic is in fp32, in whatever dtype weights and cache are kept, and a row's result has the
same bits whatever else is in the batch: products that are one chain of additions each (`linear.py`), a table
of cosines (`rope.py`), and attention that works request by request.

Does not choose tokens (`sampling.py`) or read files (`checkpoint.py`, through the `get` it is given).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tinycb.model.attention import AttentionMetadata, attention
from tinycb.model.kv_cache import KVCache
from tinycb.model.linear import Linear, RMSNorm, can_pack
from tinycb.model.model_config import ModelConfig
from tinycb.model.rope import RotaryTable
from tinycb.packing import PackedBatch

__all__ = ["GetTensor", "Llama"]

GetTensor = Callable[[str, tuple[int, ...]], Tensor]
"""Name and expected shape → the tensor, on the right device and in the right dtype."""


@dataclass(slots=True)
class Layer:
    """One decoder layer's weights."""

    input_norm: RMSNorm  # (E,)
    qkv: Linear  # E → (H + 2·KH)·D
    o: Linear  # H·D → E
    post_norm: RMSNorm  # (E,)
    gate_up: Linear  # E → I, gated
    down: Linear  # I → E


class Llama:
    """Weights, and the forward over them. `get` is asked for each tensor once, by its Hugging Face name."""

    def __init__(
        self,
        config: ModelConfig,
        get: GetTensor,
        *,
        has_head: bool,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.config, self.device, self.dtype = config, device, dtype
        self.compute_dtype = torch.float32 if can_pack(device, dtype) else dtype
        vocab, hidden = config.vocab_size, config.hidden_size
        with torch.inference_mode():
            self.embed = get("model.embed_tokens.weight", (vocab, hidden))  # (V, E)
            self.layers = [self._layer(f"model.layers.{i}.", get) for i in range(config.num_layers)]
            self.norm = RMSNorm(get("model.norm.weight", (hidden,)), config.rms_norm_eps)  # (E,)
            head = get("lm_head.weight", (vocab, hidden)) if has_head else self.embed  # (V, E)
            self.head = Linear(head)
            self.rope = RotaryTable(config, device, self.compute_dtype)

    def _layer(self, prefix: str, get: GetTensor) -> Layer:
        c = self.config
        hidden, inner = c.hidden_size, c.intermediate_size
        q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim

        def linear(
            module: str, inputs: int, outputs: dict[str, int], bias: bool, *, gated: bool = False
        ) -> Linear:
            names = [f"{prefix}{module}.{name}_proj" for name in outputs]
            sizes = list(outputs.values())
            weights = [get(f"{n}.weight", (size, inputs)) for n, size in zip(names, sizes, strict=True)]
            biases = [get(f"{n}.bias", (size,)) for n, size in zip(names, sizes, strict=True) if bias]
            return Linear(_join(weights), _join(biases) if biases else None, gated=gated)

        return Layer(
            input_norm=RMSNorm(get(f"{prefix}input_layernorm.weight", (hidden,)), c.rms_norm_eps),
            qkv=linear("self_attn", hidden, {"q": q, "k": kv, "v": kv}, c.attention_bias),
            o=linear("self_attn", q, {"o": hidden}, c.attention_bias),
            post_norm=RMSNorm(get(f"{prefix}post_attention_layernorm.weight", (hidden,)), c.rms_norm_eps),
            gate_up=linear("mlp", hidden, {"gate": inner, "up": inner}, c.mlp_bias, gated=True),
            down=linear("mlp", inner, {"down": hidden}, c.mlp_bias),
        )

    @property
    def linears(self) -> list[Linear]:
        """All its products, in their order."""
        layers = [part for layer in self.layers for part in (layer.qkv, layer.o, layer.gate_up, layer.down)]
        return [*layers, self.head]

    @property
    def bytes_per_weight(self) -> float:
        """What a number of a product's weight takes where it is kept: less than its dtype's size where it was
        made from small integers (`tinycb_kernels/linear.py`). The mean over all products."""
        return sum(part.nbytes for part in self.linears) / sum(part.num_weights for part in self.linears)

    @torch.inference_mode()
    def forward(self, batch: PackedBatch, cache: KVCache, meta: AttentionMetadata) -> Tensor:
        """Run the batch and return fp32 logits of the rows that sample: (len(sample_indices), V)."""
        arrays = (batch.token_ids, batch.positions, batch.sample_indices)
        tokens, positions, sampling = (torch.from_numpy(array).to(self.device) for array in arrays)
        longest = int(np.max(batch.positions, initial=0)) + 1
        return self.run(tokens, positions, longest, sampling, cache, meta)

    @torch.inference_mode()
    def run(
        self,
        tokens: Tensor,
        positions: Tensor,
        longest: int,
        sampling: Tensor,
        cache: KVCache,
        meta: AttentionMetadata,
    ) -> Tensor:
        """`forward` on tensors that are where the model is, as a graph can repeat it (`decode_graphs.py`).

        tokens, positions: (T,) int64, positions below `longest`. sampling: the rows whose logits are wanted.
        """
        c = self.config
        heads, kv_heads = c.num_heads, c.num_kv_heads
        cos, sin = self.rope.at(positions, longest)  # (T, D/2)
        x = F.embedding(tokens, self.embed).to(self.compute_dtype)  # (T, E)
        for index, layer in enumerate(self.layers):
            qkv = layer.qkv(x, norm=layer.input_norm)  # (T, (H + 2·KH)·D)
            qkv = qkv.unflatten(1, (heads + 2 * kv_heads, c.head_dim))  # (T, H + 2·KH, D)
            attended = attention(qkv, cos, sin, index, cache, meta).flatten(1)  # (T, H·D)
            if index == c.num_layers - 1:  # every key and value is written: only rows that sample go on
                attended, x = attended[sampling], x[sampling]  # T is now how many these are
            x = layer.o(attended, residual=x)  # (T, E)
            inner = layer.gate_up(x, norm=layer.post_norm)  # (T, I)
            x = layer.down(inner, residual=x)  # (T, E)

        return self.head(x, norm=self.norm).float()  # (sampling rows, V)


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
