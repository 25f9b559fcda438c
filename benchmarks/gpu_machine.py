"""The seam between the GPU benchmark and the machine: where tensors are, and how long a call takes there.

`Machine.gpu()` is a CUDA device; `Machine.dry()` is this machine's CPU with sizes that Triton's interpreter
can bear, for a test that runs every line of the benchmark but those in here that need CUDA.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

FLUSH_BYTES = 256 << 20  # several times the L2 cache of any GPU yet


@dataclass
class Machine:
    """device: where tensors go. is_dry: tiny sizes, and seconds that mean nothing.

    started, box: when the part began and the seconds it has, on the clock of `time.monotonic`.
    """

    device: torch.device
    is_dry: bool
    box: float = 60.0
    started: float = field(default_factory=time.monotonic)
    _flush: Tensor | None = None

    @classmethod
    def gpu(cls, box: float) -> Machine:
        return cls(torch.device("cuda"), False, box)

    @classmethod
    def dry(cls, box: float = 60.0) -> Machine:
        return cls(torch.device("cpu"), True, box)

    @property
    def name(self) -> str:
        return "a dry run on a CPU" if self.is_dry else torch.cuda.get_device_name()

    @property
    def seconds_left(self) -> float:
        return self.box - (time.monotonic() - self.started)

    def pick(self, real: Any, dry: Any) -> Any:
        """The size to use: of the benchmark, or of its dry run."""
        return dry if self.is_dry else real

    def seconds(self, call: Callable[[], Any], budget: float = 0.2) -> float:
        """The median time of a call, with cold caches. On a GPU its launches are replayed as a CUDA graph, so
        that Python's time between them does not count."""
        if self.is_dry:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        call()
        torch.cuda.synchronize()
        replay = captured(call)
        if self._flush is None:
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=self.device)
        times: list[float] = []
        until = time.monotonic() + budget
        while len(times) < 5 or (time.monotonic() < until and len(times) < 200):
            self._flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000)
        return statistics.median(times)

    def free(self) -> None:
        """Hand memory that no tensor holds back to the device."""
        if not self.is_dry:
            torch.cuda.empty_cache()

    def peak_memory(self) -> int:
        """Bytes of the device that tensors held at most."""
        return 0 if self.is_dry else torch.cuda.max_memory_allocated()


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a CUDA graph, or the call itself if it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize()
        return call
    return graph.replay


def ceilings(machine: Machine, note: Callable[[dict[str, Any]], None]) -> None:
    """What the machine can do at best: bytes a second of a copy, FLOPs a second of a bf16 matrix product."""
    source = torch.randn(machine.pick(1 << 30, 1 << 16), device=machine.device).to(torch.bfloat16)
    target = torch.empty_like(source)
    seconds = machine.seconds(lambda: target.copy_(source), 1.0)
    note({"what": "copy", "rate": 2 * source.nbytes / seconds, "unit": "B/s"})
    size = machine.pick(8192, 64)
    a, b = (torch.randn(size, size, device=machine.device).to(torch.bfloat16) for _ in range(2))
    seconds = machine.seconds(lambda: a @ b, 1.0)
    note({"what": "bf16 matmul", "rate": 2 * size**3 / seconds, "unit": "FLOP/s"})
