"""tinycb: continuous batching for LLM inference, step by step, on a real Llama.

    from tinycb import Engine, EngineConfig, SamplingParams

    engine = Engine.from_pretrained("smollm2-135m", EngineConfig(attention="paged"))
    outputs = engine.generate(["The capital of France is"], SamplingParams(max_tokens=32))

Reading order: `request.py`, `config.py`, `scheduling/`, `packing.py`, `engine.py`, `executors.py`, `model/`,
and the kernels, `tinycb_kernels`.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinycb.config import EngineConfig
    from tinycb.engine import Engine
    from tinycb.request import FinishReason, Request, RequestOutput, RequestStatus, SamplingParams

__all__ = [
    "Engine",
    "EngineConfig",
    "FinishReason",
    "Request",
    "RequestOutput",
    "RequestStatus",
    "SamplingParams",
    "__version__",
]

try:
    __version__ = version("tinycb")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0+unknown"

_HOME = {"Engine": "tinycb.engine", "EngineConfig": "tinycb.config"}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that `import tinycb` costs nothing."""
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "tinycb.request")), name)
    raise AttributeError(f"module 'tinycb' has no attribute {name!r}")
