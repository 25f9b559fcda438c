"""transformers on a job of `systems.py`: `python -m benchmarks.speed.serve_transformers JOB.json`.

With `batch_size` in its settings: `generate` on left-padded batches in order, each to the length of its
longest output; tokens past a request's own length are dropped. Without: the manager behind `generate_batch`,
given one length a request, and tinycb's limits of requests, tokens a step and memory.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.workloads import MAX_NUM_SEQS, Work, warm_up

KV_CACHE_BYTES, PAGE_SIZE = 512 * 2**20, 32
MAX_BATCH_TOKENS = 256  # tinycb's own budget of a step


def load_model(folder: str, dtype: str) -> Any:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None
    return model


def serve_static(model: Any, work: Work, batch_size: int) -> list[list[int]]:
    tokens = []
    for start in range(0, len(work.prompts), batch_size):
        prompts = [list(prompt) for prompt in work.prompts[start : start + batch_size]]
        lengths = work.lengths[start : start + batch_size]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])  # (B, width)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])  # (B, width)
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=max(lengths), do_sample=False, pad_token_id=0
        )  # (B, width + longest)
        tokens += [row[width : width + n].tolist() for row, n in zip(out, lengths, strict=True)]
    return tokens


def serve_continuous(model: Any, work: Work) -> list[list[int]]:
    from transformers import ContinuousBatchingConfig, GenerationConfig

    shape = model.config
    token_bytes = (
        2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * model.dtype.itemsize
    )
    batching = ContinuousBatchingConfig(  # left to itself, it takes most of the machine's memory
        page_size=PAGE_SIZE,
        num_blocks=KV_CACHE_BYTES // (PAGE_SIZE * token_bytes),
        max_batch_tokens=MAX_BATCH_TOKENS,
        max_requests_per_batch=MAX_NUM_SEQS,
        allow_block_sharing=False,
    )
    settings = GenerationConfig(
        do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=max(work.lengths)
    )
    results: dict[str, list[int]] = {}
    with model.continuous_batching_context_manager(settings, continuous_batching_config=batching) as manager:
        for index, (prompt, length) in enumerate(zip(work.prompts, work.lengths, strict=True)):
            manager.add_request(list(prompt), request_id=str(index), max_new_tokens=length)
        while len(results) < len(work.prompts):
            result = manager.get_result(timeout=600)
            if result is None and not manager.is_running():
                raise RuntimeError("the manager has stopped")
            if result is not None and result.is_finished():
                results[result.request_id] = list(result.generated_tokens)
    return [results[str(index)] for index in range(len(work.prompts))]


def main(path: str) -> None:
    job = json.loads(Path(path).read_text())
    model = load_model(job["model"], job["dtype"])
    batch_size = job["settings"].get("batch_size")

    def serve(work: Work) -> list[list[int]]:
        return serve_continuous(model, work) if batch_size is None else serve_static(model, work, batch_size)

    print(json.dumps({"versions": {name: version(name) for name in ("transformers", "torch")}}), flush=True)
    with torch.inference_mode():
        for name, raw in job["works"].items():
            work = Work(**raw)
            serve(warm_up(work))
            start = time.perf_counter()
            tokens = serve(work)
            seconds = time.perf_counter() - start
            print(json.dumps({"workload": name, "seconds": seconds, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
