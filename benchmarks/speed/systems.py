"""Who is compared: tinycb in its paths and ways of batching, transformers' two, vLLM's two.

Each is a script that gets a job and prints a line of JSON for every workload as it is done:

    job      {"model": folder, "dtype": "float32", "settings": {…},
              "works": {name: {"prompts": [[…], …], "lengths": […]}}}
    lines    {"versions": {…}}
             {"workload": name, "seconds": 1.23, "tokens": [[…], …]}
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.workloads import Workload

__all__ = ["DEFAULT", "QUICK", "REFERENCES", "ROOT", "SYSTEMS", "System", "vllm_python"]

ROOT = Path(__file__).parent.parent.parent
DEFAULT = "tinycb"


@dataclass(frozen=True, slots=True)
class System:
    """family: "tinycb", "transformers" or "vllm". settings: what the family's script does with the job.

    start: seconds to get ready. prompt_rate, output_rate: tokens a second. All three are guesses that the
    remaining time is told by; each run corrects them.
    """

    name: str
    title: str
    family: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: float = 6.0
    prompt_rate: float = 1200.0
    output_rate: float = 200.0

    @property
    def command(self) -> list[str]:
        """The interpreter and the script; the job's path comes after it."""
        if self.family == "vllm":
            python = vllm_python()
            if python is None:
                raise ValueError(f"{self.name} needs VLLM_PYTHON, the path of an interpreter that has vLLM")
            return [python, str(ROOT / "benchmarks/speed/serve_vllm.py")]
        return [sys.executable, "-m", f"benchmarks.speed.serve_{self.family}"]

    def guess(self, workload: Workload) -> float:
        """About how many seconds it takes to serve the workload once."""
        prompt, output = (sum(span) / 2 * workload.requests for span in (workload.prompt, workload.output))
        return prompt / self.prompt_rate + output / self.output_rate


def vllm_python() -> str | None:
    """The interpreter that VLLM_PYTHON names."""
    return os.environ.get("VLLM_PYTHON") or None


_ALL = (
    System(DEFAULT, "tinycb", "tinycb"),
    System("tinycb-float32", "tinycb, weights as float32", "tinycb", {"weights": "float32"}),
    System("tinycb-1024", "tinycb, 1024 tokens a step", "tinycb", {"max_num_batched_tokens": 1024}),
    System("tinycb-varlen", "tinycb, varlen", "tinycb", {"attention": "varlen"}),
    System("tinycb-mask", "tinycb, mask", "tinycb", {"attention": "mask"}, output_rate=100),
    System("tinycb-continuous", "tinycb, continuous", "tinycb", {"batching": "continuous"}),
    System("tinycb-static", "tinycb, static", "tinycb", {"batching": "static"}, output_rate=90),
    System(
        "transformers-static-8",
        "transformers, static batches of 8",
        "transformers",
        {"batch_size": 8},
        start=10,
        output_rate=45,
    ),
    System(
        "transformers-static-16",
        "transformers, static batches of 16",
        "transformers",
        {"batch_size": 16},
        start=10,
        output_rate=55,
    ),
    System("transformers-continuous", "transformers, continuous", "transformers", start=10, output_rate=45),
    System("vllm-eager", "vLLM, eager", "vllm", {"enforce_eager": True}, 30, 800, 150),
    System("vllm-compiled", "vLLM, compiled", "vllm", {"enforce_eager": False}, 60, 900, 220),
)
SYSTEMS = {system.name: system for system in _ALL}
QUICK = (
    DEFAULT,
    "tinycb-float32",
    "tinycb-1024",
    "vllm-compiled",
    "transformers-static-16",
    "transformers-continuous",
)  # without --all
REFERENCES = (
    "transformers-static-8",
    "transformers-static-16",
    DEFAULT,
)  # whose tokens are right: the first here
