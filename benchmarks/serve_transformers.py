"""transformers on a workload: `python -m benchmarks.serve_transformers WORK.json static|continuous [batch]`.

static: `generate` on left-padded batches in order, each to the length of its longest output; tokens past a
request's own length are dropped. continuous: the manager behind `generate_batch`, given one length a request.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import workload


def load_model(folder: Path) -> Any:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    return model


def serve_static(model: Any, work: workload.Work, batch_size: int) -> list[list[int]]:
    tokens = []
    for start in range(0, len(work.prompts), batch_size):
        prompts = work.prompts[start : start + batch_size]
        lengths = work.lengths[start : start + batch_size]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])  # (B, width)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])  # (B, width)
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=max(lengths), do_sample=False, pad_token_id=0
        )  # (B, width + longest)
        tokens += [row[width : width + n].tolist() for row, n in zip(out, lengths, strict=True)]
    return tokens


def serve_continuous(model: Any, work: workload.Work) -> list[list[int]]:
    from transformers import GenerationConfig

    settings = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=96)
    results: dict[str, list[int]] = {}
    with model.continuous_batching_context_manager(generation_config=settings, block=True) as manager:
        for index, (prompt, length) in enumerate(zip(work.prompts, work.lengths, strict=True)):
            manager.add_request(prompt, request_id=str(index), max_new_tokens=length)
        while len(results) < len(work.prompts):
            result = manager.get_result(timeout=600)
            if result is not None and result.is_finished():
                results[result.request_id] = list(result.generated_tokens)
    return [results[str(index)] for index in range(len(work.prompts))]


def print_to_stderr(message: str) -> None:
    print(message, file=sys.stderr)


def main(path: str, mode: str, batch_size: str = "8") -> None:
    from tinycb.model.checkpoint import locate

    work = workload.load(Path(path))
    folder, _ = locate("smollm2-135m", print_to_stderr)
    model = load_model(folder)
    warm = workload.Work([prompt[:9] for prompt in work.prompts[:2]], [2, 2])
    with torch.inference_mode():
        if mode == "static":
            serve_static(model, warm, 2)
            start = time.perf_counter()
            tokens = serve_static(model, work, int(batch_size))
        else:
            serve_continuous(model, warm)
            start = time.perf_counter()
            tokens = serve_continuous(model, work)
        seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "tokens": tokens}))


if __name__ == "__main__":
    main(*sys.argv[1:])
