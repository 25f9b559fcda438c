"""Reading the tensors of a folder of safetensors files, one at a time, each checked before it is read.

Files are mapped, not loaded: a tensor that needs no conversion is a view of the file. The headers are read
here first, so that a truncated file, a missing shard or a wrong shape is named together with its tensor.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinycb.model.model_config import ModelError

__all__ = ["Weights"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
STORED = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


class Weights:
    """The tensors of one checkpoint. Raises ModelError, naming the file and the tensor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[str, tuple[Path, Mapping[str, Any]]] = {}
        self._open: dict[Path, Any] = {}
        self._stored: dict[str, str] = {}  # of renamed tensors, what the files call them
        for path, expected in self._files():
            header = read_header(path)
            self._entries.update((name, (path, entry)) for name, entry in header.items())
            for name in expected:
                if name not in header:
                    raise ModelError(f"{path}: tensor {name} is missing, though {INDEX} says it is there")

    def _files(self) -> list[tuple[Path, list[str]]]:
        """The safetensors files, and the tensors that the index promises in each."""
        if (self.folder / INDEX).is_file():
            try:
                weight_map = json.loads((self.folder / INDEX).read_text())["weight_map"]
            except OSError as error:
                raise ModelError(f"{self.folder / INDEX} cannot be read: {error.strerror or error}") from None
            except (ValueError, KeyError, TypeError, RecursionError):
                raise ModelError(f"{self.folder / INDEX} is damaged: it holds no weight_map") from None
            if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
                raise ModelError(f"{self.folder / INDEX} is damaged: its weight_map names no files")
            shards: dict[str, list[str]] = {}
            for name, shard in weight_map.items():
                shards.setdefault(shard, []).append(name)
            for shard, names in shards.items():
                if not (self.folder / shard).is_file():
                    raise ModelError(f"shard {shard} is missing from {self.folder}; it holds {names[0]}")
            return [(self.folder / shard, names) for shard, names in shards.items()]
        if (self.folder / SINGLE).is_file():
            return [(self.folder / SINGLE, [])]
        raise ModelError(f"{self.folder} has no weights: it needs {SINGLE}, or {INDEX} and its shards")

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def rename(self, stored: str, name: str) -> None:
        """From here on the tensor that the files call `stored` is `name`."""
        path, entry = self._entries.pop(stored)
        self._entries[name] = path, entry
        self._stored[name] = stored

    def stored_dtype(self, name: str) -> torch.dtype:
        """The dtype in which the file keeps a tensor."""
        path, entry = self._entry(name)
        if entry["dtype"] not in STORED:
            raise ModelError(
                f"{path}: tensor {name} is stored as {entry['dtype']}, a quantized format; "
                "use a checkpoint in fp32, bf16 or fp16"
            )
        dtype: torch.dtype = getattr(torch, STORED[entry["dtype"]])
        return dtype

    def get(self, name: str, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
        """The tensor, checked against the shape that config.json asks for."""
        path, entry = self._entry(name)
        self.stored_dtype(name)
        if tuple(entry["shape"]) != shape:
            raise ModelError(
                f"{path}: tensor {name} has shape {tuple(entry['shape'])}; config.json asks for {shape}"
            )
        if path not in self._open:
            from safetensors import SafetensorError, safe_open

            try:
                self._open[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} cannot be read as safetensors: {error}") from None
        tensor: Tensor = self._open[path].get_tensor(self._stored.get(name, name))
        return tensor.to(device, dtype)

    def _entry(self, name: str) -> tuple[Path, Mapping[str, Any]]:
        if name not in self._entries:
            raise ModelError(f"{self.folder}: tensor {name} is in none of the weight files")
        return self._entries[name]


def read_header(path: Path) -> dict[str, Any]:
    """`{tensor name: {"dtype", "shape", "data_offsets"}}`. Raises ModelError if the file is cut short."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if 8 + length > size:
            raise ModelError(f"{path} is truncated, or not a safetensors file: {size} bytes hold no header")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            ends = {name: 8 + length + entry["data_offsets"][1] for name, entry in header.items()}
            if any(
                not isinstance(e["dtype"], str) or not isinstance(e["shape"], list) for e in header.values()
            ):
                raise TypeError("a dtype or a shape")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise ModelError(
                f"{path} is damaged, or not a safetensors file: its header is unreadable"
            ) from None
    for name, end in ends.items():
        if end > size:
            raise ModelError(f"{path} is truncated: tensor {name} ends at byte {end} of {size}")
    return dict(header)
