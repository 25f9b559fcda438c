"""Devices by name: how many bytes a second, how many operations a second, how much memory, says who.

Vendors' peak figures are ceilings: what is modelled from them is a floor of the time, and `efficiency` of a
`CostModel` says how far above it to go. The figures of this machine are measured (`tinycb doctor --measure`)
and kept in the cache folder. Next: `roofline.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinycb.memory import DTYPE_BYTES
from tinycb.user_cache import cache_root

__all__ = ["DEVICES", "THIS_MACHINE", "Device", "find_device", "measured_file", "save_measured"]

THIS_MACHINE = "cpu"
_GB = 10**9


@dataclass(frozen=True, slots=True)
class Device:
    """bandwidth: bytes a second. flops: operations a second by dtype. memory: bytes. source: of the figures.

    attention_flops: operations a second in attention, where that was measured apart from matrix products.
    layer_overhead: seconds that a layer takes beside its bytes and operations; 0 where nobody measured it.
    """

    name: str
    bandwidth: float
    flops: Mapping[str, float]
    memory: int
    source: str
    attention_flops: Mapping[str, float] = field(default_factory=dict)
    layer_overhead: float = 0.0

    def __post_init__(self) -> None:
        figures = [self.bandwidth, self.memory, *self.flops.values(), *self.attention_flops.values()]
        if not self.flops or any(not figure > 0 for figure in figures) or self.layer_overhead < 0:
            raise ValueError(f"the figures of device {self.name!r} must be positive: {asdict(self)}")

    def flops_of(self, dtype: str) -> float:
        """Operations a second in a dtype. Raises ValueError if this device's figure is not known."""
        if dtype not in self.flops:
            known = ", ".join(self.flops)
            raise ValueError(f"device {self.name} has no figure for {dtype}; it has {known}")
        return self.flops[dtype]

    def attention_flops_of(self, dtype: str) -> float:
        return self.attention_flops.get(dtype) or self.flops_of(dtype)


def _nvidia(name: str, memory: int, bandwidth: float, half: float, single: float, source: str) -> Device:
    """half: dense TFLOPS of the tensor cores in bf16 and fp16; data sheets "with sparsity" say twice that."""
    flops = {"float32": single * 1e12, "bfloat16": half * 1e12, "float16": half * 1e12}
    return Device(name, bandwidth, flops, memory, f"{source}; dense, fp32 outside the tensor cores")


DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        _nvidia("a100", 80 * _GB, 2.039e12, 312, 19.5, "NVIDIA A100 data sheet (June 2021), A100 80GB SXM"),
        _nvidia("h100", 80 * _GB, 3.35e12, 989.4, 67, "NVIDIA H100 data sheet (2024), H100 SXM"),
        _nvidia("h200", 141 * _GB, 4.8e12, 989.4, 67, "NVIDIA H200 data sheet (2024), H200 SXM"),
    )
}


def find_device(name: str) -> Device:
    """A device by name; `cpu` is this machine as measured. Raises ValueError with what would be right."""
    if name in DEVICES:
        return DEVICES[name]
    if name != THIS_MACHINE:
        known = ", ".join((*DEVICES, THIS_MACHINE))
        raise ValueError(f"there is no device {name!r}; there are {known}")
    path = measured_file()
    try:
        values = json.loads(path.read_text("utf-8"))
        values["flops"] = {d: float(f) for d, f in values["flops"].items() if d in DTYPE_BYTES}
        return Device(**values)
    except FileNotFoundError:
        raise ValueError("this machine has not been measured yet: tinycb doctor --measure") from None
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise ValueError(f"{path} is broken ({error!r:.60}); again: tinycb doctor --measure") from None


def measured_file() -> Path:
    """Where the figures of this machine are kept."""
    return cache_root() / "this-machine.json"


def save_measured(device: Device) -> Path:
    """Keep the figures of this machine. Raises OSError if the cache folder cannot be written."""
    path = measured_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = asdict(device)
    path.write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    return path
