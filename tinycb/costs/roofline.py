"""The least a step can cost: the bytes it must move, the operations it must do, and the seconds they take.

A step has rows: `q_len` new tokens of a request whose text is `seq_len` long with them.

    part         operations                                  bytes
    products     2 · (weights of a layer) · L · T            the same weights, once, however many rows
                 2 · V · E · rows that sample                the head, if any row samples
                                                             activations: each product's input and output
    attention    4 · H · D · L · (query, key) pairs          K and V: each request's own, read once a step;
                                                             those of the new tokens, written once

T counts padding, because padding is really computed. `(query, key) pairs` are those the causal mask allows.
Norms, activation functions, RoPE, residual sums and sampling are taken to be fused, at no cost of their own.

The floor is a sum of two maxima: within a part, bytes and operations overlap; the parts of a layer depend on
each other and cannot. One decoded token does about two operations a weight and reads two bytes for it in
bf16, and an H100 does 295 operations in the time in which it reads a byte: so decode waits for memory until
some three hundred rows share each read. That is why requests are batched.

Counts are exact for this model of a forward; seconds are *modelled*. Next: `tinycb/executors.py`, whose
`CostModelExecutor` lets a simulated clock run by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinycb.costs.devices import Device
from tinycb.memory import LlamaShape, itemsize, kv_bytes_per_token

__all__ = ["CostModel", "Floor", "StepWork"]


@dataclass(frozen=True, slots=True)
class StepWork:
    """Operations, and bytes apart by what they are of. `+` adds up steps."""

    product_ops: int
    attention_ops: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int

    @property
    def ops(self) -> int:
        return self.product_ops + self.attention_ops

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    def __add__(self, other: StepWork) -> StepWork:
        return StepWork(
            self.product_ops + other.product_ops,
            self.attention_ops + other.attention_ops,
            self.weight_bytes + other.weight_bytes,
            self.kv_bytes + other.kv_bytes,
            self.activation_bytes + other.activation_bytes,
        )


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds, all modelled. products: matrix products; attention: reading the KV cache and using it."""

    product_bytes: float
    product_ops: float
    attention_bytes: float
    attention_ops: float
    overhead: float = 0.0

    @property
    def seconds(self) -> float:
        products = max(self.product_bytes, self.product_ops)
        return products + max(self.attention_bytes, self.attention_ops) + self.overhead

    @property
    def bound(self) -> str:
        """ "bytes" or "operations": whichever most of the time goes to."""
        pairs = ((self.product_bytes, self.product_ops), (self.attention_bytes, self.attention_ops))
        by_bytes = sum(moved for moved, done in pairs if moved >= done)
        by_ops = sum(done for moved, done in pairs if done > moved)
        return "bytes" if by_bytes >= by_ops else "operations"


class CostModel:
    """What a model's steps cost on a device.

    efficiency: the share of the device's figures that is reached, 0 to 1. At 1, times are floors.
    bytes_per_weight: what a weight takes, if not the dtype's size; a loaded model's `bytes_per_weight` says.
    Raises ValueError if the device has no figure for the dtype.
    """

    def __init__(
        self,
        shape: LlamaShape,
        device: Device,
        dtype: str = "bfloat16",
        efficiency: float = 1.0,
        *,
        bytes_per_weight: float | None = None,
    ) -> None:
        if not 0 < efficiency <= 1:
            raise ValueError(f"efficiency must be above 0 and at most 1, not {efficiency!r}")
        self.shape, self.device, self.dtype, self.efficiency = shape, device, dtype, efficiency
        size, layers = itemsize(dtype), shape.num_layers
        q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        hidden, inner = shape.hidden_size, shape.intermediate_size
        weights = layers * (hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inner)
        self._head = shape.vocab_size * hidden
        self._ops_per_token = 2 * weights
        self._ops_per_pair = 4 * q * layers
        kept = size if bytes_per_weight is None else bytes_per_weight
        self._layer_bytes = round(weights * kept)
        self._head_bytes = round(self._head * kept)
        self._token_kv_bytes = kv_bytes_per_token(layers, shape.num_kv_heads, shape.head_dim, dtype)
        # In and out of the products QKV, o, gate and up, down; and the token's row of the embedding.
        between = (hidden + q + 2 * kv) + (q + hidden) + (hidden + 2 * inner) + (inner + hidden)
        self._activations_per_token = (layers * between + hidden) * size
        self._activations_per_sample = (hidden + shape.vocab_size) * size
        self._bandwidth = device.bandwidth * efficiency
        self._flops = device.flops_of(dtype) * efficiency
        self._attention_flops = device.attention_flops_of(dtype) * efficiency

    def work(
        self, rows: Iterable[tuple[int, int]], num_samples: int | None = None, num_padded: int = 0
    ) -> StepWork:
        """rows: (q_len, seq_len) of each request. num_samples: rows that get a token; None: all of them.

        num_padded: tokens of padding, which go through every product and attend to nothing.
        """
        count = tokens = pairs = seen = 0
        for q_len, seq_len in rows:
            count += 1
            tokens += q_len
            seen += seq_len
            pairs += q_len * seq_len - q_len * (q_len - 1) // 2
        return self.work_of(
            tokens + num_padded, count if num_samples is None else num_samples, seen, tokens, pairs
        )

    def work_of(self, forward_tokens: int, num_samples: int, seen: int, new: int, pairs: int) -> StepWork:
        """The same from sums over the rows. seen: of seq_len; new: of q_len; pairs: (query, key) pairs."""
        return StepWork(
            product_ops=self._ops_per_token * forward_tokens + 2 * self._head * num_samples,
            attention_ops=self._ops_per_pair * pairs,
            weight_bytes=(self._layer_bytes if forward_tokens else 0)
            + (self._head_bytes if num_samples else 0),
            kv_bytes=self._token_kv_bytes * (seen + new),
            activation_bytes=self._activations_per_token * forward_tokens
            + self._activations_per_sample * num_samples,
        )

    def floor(self, work: StepWork) -> Floor:
        """The least seconds for the work on this device."""
        return Floor(
            product_bytes=(work.weight_bytes + work.activation_bytes) / self._bandwidth,
            product_ops=work.product_ops / self._flops,
            attention_bytes=work.kv_bytes / self._bandwidth,
            attention_ops=work.attention_ops / self._attention_flops,
            overhead=self.device.layer_overhead * self.shape.num_layers,
        )

    @property
    def ridge(self) -> float:
        """Operations a byte at which this device is as long busy computing as moving."""
        return self._flops / self._bandwidth

    def balanced_rows(self, limit: int = 1 << 20) -> int | None:
        """Where the two meet: the fewest decoding rows at which operations bind the matrix products.

        None if that never happens, because each row's activations take longer to move than to use.
        """

        def compute_bound(rows: int) -> bool:
            floor = self.floor(self.work_of(rows, rows, 0, 0, 0))
            return floor.product_ops >= floor.product_bytes

        if not compute_bound(limit):
            return None
        low, high = 0, limit  # bytes bind at low, operations at high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if compute_bound(middle) else (middle, high)
        return high
