"""vLLM on a job of `systems.py`, run with the interpreter that has it: `$VLLM_PYTHON serve_vllm.py JOB.json`.

Its own defaults, but for what makes the comparison equal (as many requests at once, no prefix caching, a KV
cache of the same size) and for what makes it faster here: all of the machine's processors, of which it keeps
one for itself otherwise, and its engine in this process. Imports nothing of tinycb.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MAX_NUM_SEQS = 16
KV_CACHE_BYTES = 512 * 2**20


def serve(llm: Any, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
    from vllm import SamplingParams

    params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in lengths]
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(inputs, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def main(path: str) -> None:
    job = json.loads(Path(path).read_text())
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    if hasattr(os, "sched_getaffinity"):
        processors = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", processors)
    import torch
    import vllm

    works = job["works"]
    longest = max(
        len(prompt) + length
        for work in works.values()
        for prompt, length in zip(work["prompts"], work["lengths"], strict=True)
    )
    llm = vllm.LLM(
        model=job["model"],
        dtype=job["dtype"],
        max_num_seqs=MAX_NUM_SEQS,
        max_model_len=max(1024, longest),
        enable_prefix_caching=False,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        **job["settings"],
    )
    print(json.dumps({"versions": {"vllm": vllm.__version__, "vllm's torch": torch.__version__}}), flush=True)
    for name, work in works.items():
        prompts, lengths = work["prompts"], work["lengths"]
        serve(llm, prompts[:4], [min(4, length) for length in lengths[:4]])  # workloads.warm_up
        start = time.perf_counter()
        tokens = serve(llm, prompts, lengths)
        seconds = time.perf_counter() - start
        print(json.dumps({"workload": name, "seconds": seconds, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
