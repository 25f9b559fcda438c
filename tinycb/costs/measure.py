"""This machine's figures for the roofline, measured with the loops and products that serve a model here.

    bandwidth        bytes a second at which packed products of few rows read weights larger than any cache
    flops            operations a second of the packed product, at many rows
    attention_flops  the same in the paged attention loop, on a chunk of a prompt
    layer_overhead   seconds of a layer with next to no weights: launches, norms, RoPE, Python

Each is the best of several tries, because a busy neighbour only ever takes time away. Products are shaped as
those of the default model. Reading weights through them is slower than a plain copy (`copy_bandwidth`), and
it is what a decode step does. `tinycb bench` says how far a model built on these figures is off.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import torch

from tinycb.costs.devices import THIS_MACHINE, Device
from tinycb.model.attention import AttentionMetadata
from tinycb.model.kv_cache import KVCache, available_memory
from tinycb.model.linear import Linear
from tinycb.model.llama import Llama
from tinycb.model.tiny_random import TINY_CONFIG, TinyWeights
from tinycb.packing import Row, pack
from tinycb_kernels import paged_attention

__all__ = ["copy_bandwidth", "measure_this_machine"]

COPY_BYTES = 256 * 2**20
INNER, OUTER = 576, 3072  # in and out of the largest product of a layer of SmolLM2-135M
FEW_ROWS, MANY_ROWS, STREAMED = 4, 256, 48
CHUNK, CONTEXT, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 256, 1024, 8, 4, 64, 16
LAYERS = 24
_CPU = torch.device("cpu")


def measure_this_machine(tell: Callable[[str], None] = lambda message: None) -> Device:
    """Takes a few seconds. tell: is given what is being measured."""
    tell("matrix products")
    bandwidth, flops = _product_rates()
    tell("attention")
    attention = _attention_flops()
    tell("what a layer costs beside them")
    overhead = _layer_overhead()
    threads = torch.get_num_threads()
    processor = platform.processor() or platform.machine()
    source = (
        f"measured {date.today().isoformat()} by tinycb doctor --measure: {processor}, {os.cpu_count()} "
        f"processors, {threads} threads, torch {torch.__version__.partition('+')[0]}"
    )
    return Device(
        name=THIS_MACHINE,
        bandwidth=bandwidth,
        flops={"float32": flops},
        memory=available_memory(_CPU),
        source=source,
        attention_flops={"float32": attention},
        layer_overhead=overhead,
    )


def _best(work: Callable[[], object], tries: int = 7) -> float:
    """Seconds of the fastest try, after one that warms up."""
    work()
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def copy_bandwidth() -> float:
    """Bytes read and written a second by a copy far larger than any cache."""
    source, target = torch.ones(COPY_BYTES // 4), torch.empty(COPY_BYTES // 4)
    return 2 * COPY_BYTES / _best(lambda: target.copy_(source))


@torch.inference_mode()
def _product_rates() -> tuple[float, float]:
    """Bytes a second at few rows, through weights of a few hundred MB; operations a second at many."""
    layers = [Linear(torch.randn(OUTER, INNER)) for _ in range(STREAMED)]
    few, many = torch.randn(FEW_ROWS, INNER), torch.randn(MANY_ROWS, INNER)
    streaming = _best(lambda: [layer(few) for layer in layers])
    computing = _best(lambda: [layer(many) for layer in layers[:8]])
    return 4 * STREAMED * INNER * OUTER / streaming, 8 * 2 * MANY_ROWS * INNER * OUTER / computing


def _attention_flops() -> float:
    blocks = CONTEXT // BLOCK
    q = torch.randn(CHUNK, HEADS, HEAD_DIM)
    cache = torch.randn(2, blocks, BLOCK, KV_HEADS, HEAD_DIM)
    table = torch.arange(blocks, dtype=torch.int32)[None]
    starts = torch.tensor([0, CHUNK], dtype=torch.int32)
    lengths = torch.tensor([CONTEXT], dtype=torch.int32)
    pairs = CHUNK * CONTEXT - CHUNK * (CHUNK - 1) // 2
    seconds = _best(lambda: paged_attention(q, cache[0], cache[1], table, starts, lengths))
    return 4 * HEADS * HEAD_DIM * pairs / seconds


def _layer_overhead() -> float:
    """A step of four rows through many layers of next to nothing."""
    shape = replace(TINY_CONFIG, num_layers=LAYERS)
    weights = TinyWeights()
    model = Llama(
        shape,
        lambda name, size: weights.get(name, size, _CPU, torch.float32),
        has_head=True,
        device=_CPU,
        dtype=torch.float32,
    )
    cache = KVCache(shape, 8, BLOCK, _CPU, torch.float32, "")
    rows = [Row(str(i), [1] * 9, 8, 1, [i]) for i in range(4)]
    batch = pack(rows, BLOCK)
    meta = AttentionMetadata.build(batch, "paged", "auto", cache)
    return _best(lambda: model.forward(batch, cache, meta), tries=15) / LAYERS
