"""The paged KV cache: two tensors, and the check that they fit.

    k, v   (L, NB, BS, KH, D)      slot = block · BS + offset names one token's place in every layer

Memory is not cleared: a slot holds whatever was there until `write_kv` fills it, NaN included, and no path
reads a slot that no request owns. Who owns which block is the scheduler's business (`scheduling/`).
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from tinycb.memory import kv_bytes_per_token
from tinycb.model.model_config import ModelConfig

__all__ = ["KVCache", "available_memory"]


class KVCache:
    """Keys and values of `num_blocks` blocks of `block_size` tokens, for every layer.

    Raises ValueError if the machine has not that much memory left. On a CPU the pages are only claimed as
    they are written.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
        asked: str = "",
    ) -> None:
        """asked: the setting to name if the cache does not fit, where `num_blocks` follows from another."""
        token_bytes = kv_bytes_per_token(config.num_layers, config.num_kv_heads, config.head_dim, str(dtype))
        block_bytes = block_size * token_bytes
        needed = num_blocks * block_bytes
        available = available_memory(device)
        if needed > available:
            raise ValueError(
                f"{asked or f'num_blocks={num_blocks}'} does not fit: the KV cache needs {needed} bytes, "
                f"and {device} has {available} available, enough for {available // block_bytes} blocks"
            )
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.k = torch.empty(shape, device=device, dtype=dtype)  # (L, NB, BS, KH, D)
        self.v = torch.empty(shape, device=device, dtype=dtype)  # (L, NB, BS, KH, D)

    @property
    def num_blocks(self) -> int:
        return self.k.shape[1]

    @property
    def block_size(self) -> int:
        return self.k.shape[2]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """One layer's keys and values, (NB, BS, KH, D) each."""
        return self.k[index], self.v[index]


def available_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on the device, as well as the system can tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            available = min(available, int(line.split()[1]) * 1024)
    return min(available, _container_headroom(available))


def _container_headroom(otherwise: int) -> int:
    """What a Linux container (cgroup v2) may still use; `otherwise` where there is no such limit."""
    limit = "".join(_lines("/sys/fs/cgroup/memory.max"))
    used = "".join(_lines("/sys/fs/cgroup/memory.current"))
    if not limit.isdigit() or not used.isdigit():
        return otherwise
    reclaimable = sum(
        int(line.split()[1])
        for line in _lines("/sys/fs/cgroup/memory.stat")
        if line.startswith(("inactive_file ", "active_file "))
    )
    return max(0, int(limit) - int(used) + reclaimable)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
