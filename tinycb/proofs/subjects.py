"""From "my_module:my_kernel" or "folder/my_file.py:my_kernel" to the thing itself, or a line on why not.

Next: `worker.py`, where it is run.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["CannotLoad", "load_subject"]


class CannotLoad(Exception):
    """The subject cannot be had; the message names it and says why, in one line."""


def load_subject(spec: str, kind: str) -> Any:
    """Import a subject.

    Args:
        spec: "module:name" or "file.py:name"; name may have dots. Of a scheduler, a policy's name will do.
        kind: what it will be checked as; everything but a policy's name must be callable.

    Raises:
        CannotLoad: it cannot be imported, there is no such name, or it cannot be called.
    """
    where, colon, name = spec.rpartition(":")
    if not colon and kind in ("scheduler", "chunked"):
        return spec
    if not where or not name:
        raise CannotLoad(f"{spec}: write module:name, such as my_kernels:paged, or file.py:name")
    try:
        found: Any = _import(where)
    except CannotLoad:
        raise
    except BaseException as error:  # a module may also call sys.exit, and fail however it likes
        text = " ".join(str(error).split())
        raise CannotLoad(f"cannot import {where}: {type(error).__name__}: {text}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), 1)
            raise CannotLoad(f"{where} has no {name}" + (f"; did you mean {near[0]}?" if near else ""))
        found = getattr(found, part)
    if not callable(found):
        raise CannotLoad(f"{spec} is {found!r}, which cannot be called"[:300])
    return found


def _import(where: str) -> ModuleType:
    if not where.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    path = Path(where).resolve()
    if not path.is_file():
        raise CannotLoad(f"there is no file {where}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{where} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
