"""The sizes of a model, by name or from its `config.json`; no weights are read or needed.

A few models ship as small files in `models/`. Next: `devices.py`.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from tinycb.model.model_config import ModelConfig, ModelError

__all__ = ["known_shapes", "load_shape"]


def known_shapes() -> list[str]:
    """Names of the models that ship with tinycb."""
    folder = resources.files("tinycb.costs").joinpath("models")
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir())


def load_shape(model: str | Path) -> ModelConfig:
    """A known name, a `config.json`, or a folder that holds one.

    Raises ModelError, in one line, if there is no such model or tinycb could not run it.
    """
    name = str(model)
    if name in known_shapes():
        text = resources.files("tinycb.costs").joinpath("models", f"{name}.json").read_text("utf-8")
        return ModelConfig.from_dict(json.loads(text))
    path = Path(model) / "config.json" if Path(model).is_dir() else Path(model)
    if not path.is_file():
        known = ", ".join(known_shapes())
        raise ModelError(f"there is no model {name!r}; give {known}, a config.json or a folder that has one")
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path} holds a {type(raw).__name__} and not an object")
    try:
        return ModelConfig.from_dict(raw)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except (TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise ModelError(f"{path} is no model's configuration ({error!r:.80})") from None
