"""tinycb on a job of `systems.py`: `python -m benchmarks.speed.serve_tinycb JOB.json`.

The job's settings are those of EngineConfig, and "weights": "float32" to keep these as they were read, where
they would be kept as the integers that they were made from (`tinycb_kernels/numba_bytes.py`). A workload's
line also has the memory that was taken until then: "peak", "weights" and "cache", in bytes.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.speed.memory import PeakMemory, bytes_of_weights
from benchmarks.speed.workloads import MAX_NUM_SEQS, Work, warm_up
from tinycb import Engine, EngineConfig, SamplingParams
from tinycb.executors import LlamaExecutor
from tinycb.memory import kv_bytes_per_token
from tinycb.model.checkpoint import load
from tinycb.tracing import StepRecord
from tinycb_kernels import linear


class Service:
    """An engine, and how many of its blocks were ever written to."""

    def __init__(self, model: str, config: EngineConfig) -> None:
        self.loaded = load(model, dtype=config.dtype)
        self.executor = LlamaExecutor(self.loaded, config)
        self.engine = Engine(config, self.executor, self.loaded.tokenizer)
        self.blocks = 0

    def serve(self, work: Work) -> list[list[int]]:
        params = [SamplingParams(max_tokens=length, ignore_eos=True) for length in work.lengths]
        outputs = self.engine.generate(work.prompts, params, on_step=self._look)
        return [output.token_ids for output in outputs]

    def write_cache(self, work: Work) -> None:
        """Write to the blocks that the work will need at most, as vLLM does to all when it starts: memory's
        first use is slow."""
        block_size = self.engine.pool.block_size
        sizes = [
            -(-(len(prompt) + length) // block_size)
            for prompt, length in zip(work.prompts, work.lengths, strict=True)
        ]
        blocks = min(sum(sorted(sizes)[-MAX_NUM_SEQS:]), self.engine.pool.num_blocks)
        self.blocks = max(self.blocks, blocks)
        cache = self.executor.cache
        for part in (cache.k, cache.v):
            part[:, :blocks].zero_()

    def _look(self, record: StepRecord) -> None:
        self.blocks = max(self.blocks, self.engine.pool.num_blocks - record.num_free_blocks)

    @property
    def bytes_of_cache(self) -> int:
        """Of the blocks that were used: memory that was never written is not there."""
        shape = self.loaded.config
        token = kv_bytes_per_token(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, str(self.loaded.model.dtype)
        )
        return self.blocks * self.engine.pool.block_size * token


def main(path: str) -> None:
    job = json.loads(Path(path).read_text())
    settings = dict(job["settings"])
    if settings.pop("weights", None) == "float32":
        linear.as_bytes = lambda weight, order: None
    config = EngineConfig(dtype=job["dtype"], max_num_seqs=MAX_NUM_SEQS, prefix_caching=False, **settings)
    memory = PeakMemory(job["dtype"])
    with memory.watched():
        service = Service(job["model"], config)
    print(
        json.dumps({"versions": {name: version(name) for name in ("tinycb", "torch", "numba")}}), flush=True
    )
    for name, raw in job["works"].items():
        work = Work(**raw)
        service.serve(warm_up(work))
        service.write_cache(work)
        with memory.watched():
            start = time.perf_counter()
            tokens = service.serve(work)
            seconds = time.perf_counter() - start
        taken = {
            "peak": memory.peak,
            "weights": bytes_of_weights(service.loaded),
            "cache": service.bytes_of_cache,
        }
        print(json.dumps({"workload": name, "seconds": seconds, "tokens": tokens, **taken}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
