"""Small shapes and memories in every combination, then models that exist, beside tinycb's own budget."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb.costs.devices import DEVICES
from tinycb.costs.shapes import load_shape
from tinycb.learn import expect
from tinycb.memory import MemoryBudget, weight_bytes

HINTS = [
    "First the bytes of one token. Keys *and* values.",
    "A block is whole or it is not there: divide the bytes that are left by the bytes of a block, rounding "
    "down.",
    "How many blocks does one request need? Its last block counts even if it holds a single token: round up.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `how_many_fit` is right."""
    for layers, heads, dim, element, size in product((1, 3), (1, 2), (4, 8), (2, 4), (1, 4, 16)):
        token = 2 * layers * heads * dim * element
        for tokens, rest, length in product((16, 17, 40, 63), (0, token - 1), (1, 4, 9, 16)):
            _one_case(exercise, 1000 + tokens * token + rest, 1000, layers, heads, dim, element, size, length)
    for model, dtype, element in (("llama-3-8b", "bfloat16", 2), ("smollm2-135m", "float32", 4)):
        shape, memory = load_shape(model), DEVICES["h100"].memory
        sizes = (shape.num_layers, shape.num_kv_heads, shape.head_dim, element)
        budget = MemoryBudget.of(shape, memory, dtype)
        for length in (100, 2048, 8192):
            _one_case(exercise, memory, weight_bytes(shape, dtype), *sizes, 16, length)
            expect(
                exercise.how_many_fit(memory, weight_bytes(shape, dtype), *sizes, 16, length)
                == (budget.num_blocks, budget.requests_of(length)),
                "tinycb's own budget says something else",
                model=model,
                length=length,
            )


def _one_case(
    exercise: ModuleType,
    memory: int,
    weights: int,
    layers: int,
    heads: int,
    dim: int,
    element: int,
    size: int,
    length: int,
) -> None:
    got = exercise.how_many_fit(memory, weights, layers, heads, dim, element, size, length)
    case = {
        "memory": memory,
        "weights": weights,
        "num_layers": layers,
        "num_kv_heads": heads,
        "head_dim": dim,
        "element_bytes": element,
        "block_size": size,
        "length": length,
        "got": got,
    }
    is_pair = isinstance(got, tuple) and len(got) == 2 and all(type(part) is int for part in got)
    expect(is_pair, "the answer is not two whole numbers, blocks and requests", **case)
    blocks, requests = got
    block_bytes = size * sum(element for _ in ("key", "value")) * layers * heads * dim
    left = memory - weights
    expect(blocks * block_bytes <= left, "the blocks take more bytes than the weights leave", **case)
    expect((blocks + 1) * block_bytes > left, "one more block would have fitted", **case)
    each = (length + size - 1) // size
    expect(requests * each <= blocks, "the requests need more blocks than there are", **case)
    expect((requests + 1) * each > blocks, "one more request would have fitted", **case)
