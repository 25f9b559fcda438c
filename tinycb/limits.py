"""What an engine can serve at all: the configuration an executor has room for, and the requests that fit.

Everything here is asked before anything runs. Whether a request that fits has to wait is the scheduler's.
"""

from __future__ import annotations

from dataclasses import replace

from tinycb.config import EngineConfig
from tinycb.executors import Executor
from tinycb.request import Request
from tinycb.scheduling import BlockPool

__all__ = ["check_fits", "settle"]


def settle(config: EngineConfig, executor: Executor) -> EngineConfig:
    """Fill in what depends on the executor: the number of blocks, and how long a request may get.

    Raises ValueError, naming the field, where the executor has no room for what is asked.
    """
    num_blocks = config.num_blocks or executor.num_blocks or 1024
    if executor.num_blocks is not None and num_blocks > executor.num_blocks:
        raise ValueError(f"num_blocks={num_blocks} is more than the {executor.num_blocks} there is room for")
    block_size = getattr(executor, "block_size", None)  # of one that keeps a cache
    if block_size not in (None, config.block_size):
        raise ValueError(
            f"block_size={config.block_size}, and the executor's cache has blocks of {block_size}"
        )
    limit = executor.max_model_len
    max_model_len = config.max_model_len or limit or num_blocks * config.block_size
    if limit is not None and max_model_len > limit:
        raise ValueError(f"max_model_len={max_model_len} is more than the model's own {limit}")
    return replace(config, num_blocks=num_blocks, max_model_len=max_model_len)


def check_fits(
    request: Request, max_model_len: int, pool: BlockPool, executor: Executor, *, has_tokenizer: bool
) -> None:
    """Raise ValueError, saying what is wrong, if the request can never be served."""
    length = request.num_tokens
    if length > max_model_len:
        raise ValueError(f"the prompt has {length} tokens, max_model_len is {max_model_len}")
    if length > pool.capacity:
        blocks = f"{pool.num_blocks} blocks of {pool.block_size}"
        raise ValueError(f"the prompt has {length} tokens, all of the pool holds {pool.capacity} ({blocks})")
    largest, vocab_size = max(request.token_ids), executor.vocab_size
    if vocab_size is not None and largest >= vocab_size:
        raise ValueError(f"prompt_token_ids holds {largest}, the vocabulary has {vocab_size} tokens")
    if request.sampling_params.stop and not has_tokenizer:
        raise ValueError("stop strings need a tokenizer, and this engine has none: use stop_token_ids")
    executor.check_request(request)
