"""Eight workloads that vLLM and tinycb both serve, small enough for two cores: who comes when, with what."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tinycb import EngineConfig

__all__ = ["WORKLOADS", "Workload"]


@dataclass(frozen=True)
class Workload:
    """requests: id → (prompt, output tokens, the step before which it comes). aborts: id → step."""

    config: EngineConfig
    requests: dict[str, tuple[list[int], int, int]]
    aborts: dict[str, int] = field(default_factory=dict)

    def job(self, model: str, trace: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": model,
            "arguments": arguments,
            "trace": trace,
            "requests": [
                {
                    "id": name,
                    "prompt_token_ids": prompt,
                    "params": {"max_tokens": length, "temperature": 0.0, "ignore_eos": True},
                    "step": step,
                }
                for name, (prompt, length, step) in self.requests.items()
            ],
            "aborts": [{"id": name, "step": step} for name, step in self.aborts.items()],
        }


def _config(**changed: Any) -> EngineConfig:
    defaults: dict[str, Any] = {
        "block_size": 32,
        "num_blocks": 64,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "max_model_len": 256,
        "dtype": "float32",
    }
    return EngineConfig(**(defaults | changed))


def _make() -> dict[str, Workload]:
    rng = random.Random(6)

    def prompt(length: int) -> list[int]:
        return [rng.randrange(100, 40_000) for _ in range(length)]

    system, other = prompt(70), prompt(40)
    pool = {"num_blocks": 7, "max_model_len": 160}
    return {
        "plain": Workload(_config(), {f"r{i}": (prompt(5 + 3 * i), 4 + i, 0) for i in range(6)}),
        "preemption": Workload(_config(**pool), {f"r{i}": (prompt(27 + i), 22, 0) for i in range(5)}),
        "shared prefixes": Workload(
            _config(),
            {f"r{i}": ((system if i % 2 else other) + prompt(3 + i), 5, i) for i in range(6)},
        ),
        "long prompts": Workload(
            _config(max_num_batched_tokens=32),
            {"short": (prompt(4), 14, 0), "long": (prompt(190), 4, 1), "next": (prompt(100), 4, 2)},
        ),
        "arrivals": Workload(_config(), {f"r{i}": (prompt(9 + 7 * i), 6, 3 * i) for i in range(6)}),
        "aborts": Workload(
            _config(max_num_seqs=2),
            {f"r{i}": (prompt(20 + 10 * i), 9, 0) for i in range(5)},
            {"r0": 3, "r3": 2, "r2": 6},
        ),
        "no caching": Workload(
            _config(**pool, prefix_caching=False, max_num_seqs=3),
            {f"r{i}": (prompt(30 + 15 * i), 12, i // 2) for i in range(5)},
        ),
        "no reserve": Workload(
            _config(**pool, reserve_full_prompt=False),
            {f"r{i}": (prompt(60 + 11 * i), 8, 0) for i in range(4)},
        ),
    }


WORKLOADS = _make()
