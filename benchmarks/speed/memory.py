"""How much memory of its own a process takes at most: `RssAnon`, in which mapped files do not count.

Linux keeps no record of its peak, so a thread looks every 20 ms; each look costs some 50 µs.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tinycb import Engine, EngineConfig, SamplingParams
from tinycb.model.checkpoint import LoadedModel
from tinycb_kernels.linear import pack_weight, packed_linear

__all__ = ["PeakMemory", "bytes_of_weights", "own_memory"]

EVERY = 0.02  # seconds
_STATUS = Path("/proc/self/status")


def own_memory() -> int:
    """Bytes of this process that stand in no file; 0 where the system does not say."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


class PeakMemory:
    """Bytes above those of the imports. `peak` is the most so far."""

    def __init__(self, dtype: str) -> None:
        self._imports = _memory_of_imports(dtype)
        self.peak = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again while the block runs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(EVERY):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.look()

    def look(self) -> None:
        self.peak = max(self.peak, own_memory() - self._imports)


def _memory_of_imports(dtype: str) -> int:
    """After a model of a few hundred kB has answered: libraries, compiled loops and threads are there. Its
    weights are no small integers in disguise, so loops for these have a weight of their own."""
    packed_linear(torch.ones(1, 32), pack_weight(torch.ones(16, 32)))
    config = EngineConfig(num_blocks=8, attention="paged", dtype=dtype)
    engine = Engine.from_pretrained("tiny-random", config)
    engine.generate([[1, 2, 3]], SamplingParams(max_tokens=3, ignore_eos=True))
    del engine
    gc.collect()
    return own_memory()


def bytes_of_weights(loaded: LoadedModel) -> int:
    """The model's weights as they are kept. A tied table that is packed for the head counts twice."""
    model = loaded.model
    return model.embed.nbytes + sum(linear.nbytes for linear in model.linears)
