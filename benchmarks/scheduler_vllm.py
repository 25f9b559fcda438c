"""vLLM's own scheduler on the load of `scheduler.py`, run by that module with the interpreter that has vLLM.

    python scheduler_vllm.py RUNNING STEPS PROMPT BLOCK_SIZE        prints {"microseconds": …}

Drives `Scheduler` as the engine core does: `schedule`, then `update_from_output` with one token a request. No
model is loaded; a tiny `config.json` satisfies vLLM's own checks. Imports nothing of tinycb.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 50_000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}


def make_scheduler(running: int, length: int, block_size: int) -> Any:
    """A scheduler with room for `running` requests of `length` tokens."""
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    blocks = running * (length // block_size + 2) + 8
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIG))
        model = ModelConfig(model=folder, skip_tokenizer_init=True, dtype="float32", max_model_len=length)
        scheduling = SchedulerConfig(
            max_num_batched_tokens=max(8192, running),
            max_num_seqs=running,
            max_model_len=length,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
        )
        cache = CacheConfig(block_size=block_size, enable_prefix_caching=True)
        cache.num_gpu_blocks = blocks
        config = VllmConfig(model_config=model, scheduler_config=scheduling, cache_config=cache)
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=4, head_size=16, dtype=torch.float32)
    kv = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return Scheduler(config, kv, StructuredOutputManager(config), block_size=block_size)


def make_request(index: int, prompt: int, max_tokens: int, block_size: int) -> Any:
    """The same prompt as `scheduler.py` gives the request of this number."""
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    if index == 0:
        init_none_hash(sha256)
    return Request(
        request_id=f"request-{index}",
        prompt_token_ids=[(index * 7919 + position) % 50_000 for position in range(prompt)],
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(block_size, sha256),
    )


def step(scheduler: Any) -> int:
    """One step; returns how many requests got a token."""
    from vllm.v1.outputs import ModelRunnerOutput

    chosen = scheduler.schedule()
    names = list(chosen.num_scheduled_tokens)
    output = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    scheduler.update_from_output(chosen, output)
    return len(names)


def main(running: int, steps: int, prompt: int, block_size: int) -> None:
    scheduler = make_scheduler(running, prompt + steps + 64, block_size)
    for index in range(running):
        scheduler.add_request(make_request(index, prompt, steps + 50, block_size))
    for _ in range(20):
        step(scheduler)
    gc.collect()
    begin = time.perf_counter()
    rows = sum(step(scheduler) for _ in range(steps))
    spent = time.perf_counter() - begin
    assert rows == running * steps, f"{rows} rows ran, not {running * steps}"
    print(json.dumps({"microseconds": 1e6 * spent / rows}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
