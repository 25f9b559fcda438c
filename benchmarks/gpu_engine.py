"""The engine on a model of Llama 3 8B's shape with random weights: decode steps with and without CUDA graphs.

Every token costs what a real one does; what it says means nothing. The floor of a step is the time to read
the weights, and the keys and values of all requests, once at the measured copy bandwidth.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_machine import Machine
from tinycb import Engine, EngineConfig, SamplingParams
from tinycb.executors import LlamaExecutor
from tinycb.model.checkpoint import LoadedModel
from tinycb.model.llama import Llama
from tinycb.model.model_config import ModelConfig
from tinycb.model.tiny_random import TINY_CONFIG
from tinycb.tracing.records import StepRecord

LLAMA_3_8B = ModelConfig(
    vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
    num_kv_heads=8, head_dim=128, rms_norm_eps=1e-5, max_position_embeddings=8192, tie_word_embeddings=False,
    attention_bias=False, mlp_bias=False, eos_token_ids=(),
    rope={"rope_type": "default", "rope_theta": 500_000.0},
)  # fmt: skip


def random_model(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> tuple[LoadedModel, int]:
    """A model of this shape, and the bytes of its weights that a decode step reads."""
    read = 0

    def get(name: str, shape: tuple[int, ...]) -> Tensor:
        nonlocal read
        tensor = torch.ones(shape, device=device, dtype=dtype)
        if "norm" not in name:
            tensor.normal_(std=shape[-1] ** -0.5)
        read += 0 if "embed" in name else tensor.nbytes
        return tensor

    model = Llama(config, get, has_head=True, device=device, dtype=dtype)
    return LoadedModel("random Llama", model, config, None), read


def serve(machine: Machine, note: Callable[[dict[str, Any]], None]) -> None:
    """Batches of equal prompts: the median decode step, and what it is of its floor."""
    config = machine.pick(LLAMA_3_8B, TINY_CONFIG)
    loaded, weights = random_model(config, machine.device, machine.pick(torch.bfloat16, torch.float32))
    note({"what": "weights read by a step", "bytes": weights})
    prompt, output = machine.pick((512, 64), (12, 3))
    for number in machine.pick((1, 16, 64, 256), (2,)):
        engine_config = EngineConfig(
            num_blocks=machine.pick(12_000, 32), block_size=16, max_num_seqs=number,
            max_num_batched_tokens=machine.pick(4096, 16), max_model_len=machine.pick(1024, 64),
            device=machine.device.type, prefix_caching=False, backend=machine.pick("auto", "triton"),
        )  # fmt: skip
        executor = LlamaExecutor(loaded, engine_config)
        graphs = executor.graphs
        for with_graphs in (False, True):
            row: dict[str, Any] = {"batch": number, "graphs": with_graphs}
            if machine.seconds_left < 15:
                note(row | {"failed": "no time was left"})
                continue
            executor.graphs = graphs if with_graphs else None
            try:
                note(row | timed(Engine(engine_config, executor), number, prompt, output, machine))
            except Exception as error:
                note(row | {"failed": f"{type(error).__name__}: {error}"[:200]})
        del executor, graphs
        machine.free()
    note({"what": "most memory held", "bytes": machine.peak_memory()})


def timed(engine: Engine, number: int, prompt: int, output: int, machine: Machine) -> dict[str, Any]:
    """Serve twice, the first time to compile and record; the second is measured."""
    steps: list[StepRecord] = []
    # Each prompt another: nothing is shared, and random weights give no two the same tokens.
    prompts = [[(7 * i + j) % 251 + 1 for j in range(prompt)] for i in range(number)]
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    for _ in range(machine.pick(2, 1)):
        steps.clear()
        engine.generate(prompts, params, on_step=steps.append)
    decodes = [step for step in steps if len(step.scheduled) == number == sum(step.scheduled.values())]
    step = statistics.median(s.time_end - s.time_start for s in decodes)
    c = engine.executor.model.config  # type: ignore[attr-defined]
    kv = number * (prompt + output // 2) * 2 * c.num_layers * c.num_kv_heads * c.head_dim * 2
    whole = steps[-1].time_end - steps[0].time_start
    return {
        "decode_step": step, "tokens/s": number / step, "kv_bytes": kv, "whole_seconds": whole,
        "whole_tokens/s": number * output / whole,
    }  # fmt: skip
