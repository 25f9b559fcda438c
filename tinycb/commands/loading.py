"""From the flags to a loaded model and an engine: the slow part of a start, its progress and its errors."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinycb.commands.errors import CommandError, one_line
from tinycb.commands.flags import flag_message
from tinycb.commands.terminal import progress
from tinycb.config import EngineConfig

if TYPE_CHECKING:
    from tinycb.engine import Engine
    from tinycb.model.checkpoint import LoadedModel

__all__ = ["check_trace_path", "load_model", "make_engine", "warm_up"]


def load_model(name: str, config: EngineConfig, quiet: bool = False) -> LoadedModel:
    """The model, ready and warm, with a message for whatever takes long. Raises CommandError."""
    with progress(f"loading {name}", quiet) as tell:
        if config.backend == "triton":
            _interpret_triton_without_gpu(config.device, quiet)
        from tinycb.model.checkpoint import load

        try:
            loaded = load(name, device=config.device, dtype=config.dtype, on_progress=tell)
            tell("warming up (the very first time, loops are compiled)")
            warm_up(loaded, config)
            return loaded
        except ValueError as error:
            raise CommandError(one_line(error)) from None
        except (MemoryError, RuntimeError) as error:
            raise CommandError(f"cannot load {name}: {one_line(error)}") from None


def make_engine(loaded: LoadedModel, config: EngineConfig, **settings: Any) -> Engine:
    """An engine on a loaded model. Raises CommandError if the configuration does not fit model or machine."""
    from tinycb.engine import Engine
    from tinycb.executors import LlamaExecutor

    try:
        return Engine(config, LlamaExecutor(loaded, config), loaded.tokenizer, **settings)
    except (ValueError, OSError) as error:
        raise CommandError(one_line(flag_message(str(error)))) from None
    except (MemoryError, RuntimeError) as error:
        raise CommandError(f"the KV cache does not fit: {one_line(error)}; lower --num-blocks") from None


def warm_up(loaded: LoadedModel, config: EngineConfig) -> None:
    """Pay for what only a first forward costs, such as compiling loops, before a latency is measured."""
    from tinycb.engine import Engine
    from tinycb.executors import LlamaExecutor
    from tinycb.request import SamplingParams

    small = replace(config, num_blocks=-(-16 // config.block_size), max_model_len=None)
    engine = Engine(small, LlamaExecutor(loaded, small))
    engine.generate([[1] * 8, [2] * 4], SamplingParams(max_tokens=2, ignore_eos=True))


def check_trace_path(path: str) -> None:
    """Raise CommandError now, and not after the model has been loaded, if a trace cannot be written there."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise CommandError(f"cannot write --trace {path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise CommandError(f"cannot write --trace {path}: it is a folder; name a file")
    if not os.access(path if Path(path).exists() else folder, os.W_OK):
        raise CommandError(f"cannot write --trace {path}: permission denied")


def _interpret_triton_without_gpu(device: str, quiet: bool) -> None:
    """Triton decides when it is imported whether it interprets; that is still to come."""
    import torch

    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if not quiet:
        print(
            "no GPU: --backend triton runs in Triton's interpreter, thousands of times slower",
            file=sys.stderr,
        )
