"""A .gguf file as a Hugging Face folder, converted once and kept in the user's cache.

transformers dequantizes the file, which takes some 20 s; the folder it becomes opens in a moment. The cache
is `platformdirs.user_cache_dir("tinycb")`, or where TINYCB_CACHE points. A folder is named after the file's
content, written aside and renamed into place, so a killed or a second conversion leaves nothing half done;
its manifest holds the size and a fingerprint of each file, and one that does not match is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tinycb.model.model_config import ModelError
from tinycb.user_cache import cache_root

__all__ = ["cache_root", "convert", "folder_for"]

FORMAT_VERSION = 1
_WINDOWS, _WINDOW_BYTES = 64, 64 * 1024
_MANIFEST = "manifest.json"


def folder_for(gguf: Path, on_progress: Callable[[str], None]) -> Path:
    """The converted folder of a .gguf file, made if it is not there or is damaged."""
    root = cache_root()
    target = root / f"{gguf.stem}-v{FORMAT_VERSION}-{fingerprint(gguf)[:16]}"
    if is_whole(target):
        return target
    on_progress(f"converting {gguf.name} once, about 20 s; it is kept in {root}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        workplace = Path(tempfile.mkdtemp(prefix=".making-", dir=root))
    except OSError as error:
        raise ModelError(f"cannot write to the cache {root}: {error.strerror}; set TINYCB_CACHE") from None
    try:
        made = workplace / "new"
        made.mkdir()
        convert(gguf, made)
        files = [path for path in made.iterdir() if path.is_file()]
        manifest = {path.name: [path.stat().st_size, fingerprint(path)] for path in files}
        (made / _MANIFEST).write_text(json.dumps(manifest, indent=1))
        with contextlib.suppress(OSError):  # another process was first, and its folder is as good
            if target.exists() and not is_whole(target):
                target.rename(workplace / "damaged")
            made.rename(target)
    except ModelError:
        raise
    except Exception as error:  # a full disk is an OSError here and a SafetensorError there
        raise ModelError(f"{gguf} could not be converted into {root}: {error}") from None
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
        _remove_abandoned(root)
    if not is_whole(target):
        raise ModelError(f"the converted model in {target} is damaged; remove it and start again")
    return target


def _remove_abandoned(root: Path) -> None:
    """Conversions that were killed: their folders have not been touched for an hour."""
    for folder in root.glob(".making-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > 3600:
                shutil.rmtree(folder, ignore_errors=True)


def fingerprint(path: Path) -> str:
    """A hash of the size and of 64 windows spread evenly over the file, first and last bytes included."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(_WINDOWS):
            file.seek(max(0, size - _WINDOW_BYTES) * i // (_WINDOWS - 1))
            digest.update(file.read(_WINDOW_BYTES))
            if size <= _WINDOW_BYTES:
                break
    return digest.hexdigest()


def is_whole(folder: Path) -> bool:
    """Whether every file of the manifest is there, with its size and fingerprint."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        return bool(manifest) and all(
            (folder / name).stat().st_size == size and fingerprint(folder / name) == digest
            for name, (size, digest) in manifest.items()
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def convert(gguf: Path, folder: Path) -> None:
    """Write config.json, model.safetensors (fp32) and the tokenizer's files of a Llama into `folder`."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    try:
        with _quiet():
            model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
            AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    except Exception as error:  # a damaged or foreign file fails in many ways inside the reader
        reason = " ".join(str(error).split())
        raise ModelError(f"{gguf} cannot be read as a GGUF model: {reason}") from None
    if model.config.model_type != "llama":
        found = model.config.model_type
        raise ModelError(f"{gguf}: architecture {found} is not supported; tinycb runs llama")
    raw = model.config.to_dict()
    raw.pop("quantization_config", None)
    raw["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(raw, indent=1, default=str))
    tensors = model.state_dict()
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers without its progress bars and warnings, which it writes to stderr."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield
