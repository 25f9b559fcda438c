"""Runs a module with one line rewritten, and puts everything back afterwards.

A Python function is changed where it is: its `__code__` is exchanged, so classes, enums and everybody's
references to the function stay the same objects. A compiled kernel cannot be: Numba and Triton translate a
function's source once, and inline the helpers they imported. So the kernel modules are loaded anew, the
changed one from a file of its own, with a compilation cache that is thrown away; `paged_attention` and its
like look up their kernels in each call, and find the new ones.

Which lines are worth rewriting is said in `planted.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest import mock

__all__ = ["compiled_lines", "is_compiled", "rewritten", "swapped_lines"]

COMPILED = ("tinycb_kernels.numba_", "tinycb_kernels.triton_")


def is_compiled(module: str) -> bool:
    """Whether the module's functions are translated by Numba or Triton."""
    return module.startswith(COMPILED)


def rewritten(module: str, line: str, replacement: str) -> tuple[Path, str]:
    """The module's file, and its source with the line exchanged. RuntimeError unless it is there once."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"there is no source of {module} to plant a fault in")
    path = Path(spec.origin)
    lines = path.read_text().split("\n")
    places = [index for index, text in enumerate(lines) if text.strip() == line]
    if len(places) != 1:
        raise RuntimeError(
            f"{path.name} has the line {line!r} {len(places)} times, and a fault needs it once"
        )
    indentation = lines[places[0]][: -len(lines[places[0]].lstrip())]
    lines[places[0]] = indentation + replacement
    return path, "\n".join(lines)


@contextmanager
def swapped_lines(module: str, line: str, replacement: str) -> Iterator[None]:
    """Exchange the code of the one function of an ordinary module that holds the line."""
    path, source = rewritten(module, line, replacement)
    old = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    new = compile(source, str(path), "exec", dont_inherit=True)
    code = changed_function(old, new)
    if code is None:
        raise RuntimeError(f"{path.name}: {line!r} is in no function")
    function = find_function(importlib.import_module(module), code.co_qualname)
    original = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = original


def changed_function(old: CodeType, new: CodeType) -> CodeType | None:
    """The outermost function in `new` that is not as in `old`; classes and modules are looked into."""
    for before, after in zip(old.co_consts, new.co_consts, strict=False):
        if isinstance(after, CodeType) and before != after:
            is_function = bool(after.co_flags & inspect.CO_OPTIMIZED)
            return after if is_function else changed_function(before, after)
    return None


def find_function(module: ModuleType, qualname: str) -> FunctionType:
    """The function of that name, from under whatever decorates it."""
    found: Any = module
    for name in qualname.split("."):
        found = vars(found)[name]
        found = getattr(found, "fget", None) or getattr(found, "func", None) or found  # properties
    function = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(function, FunctionType):
        raise RuntimeError(f"{module.__name__}.{qualname} is no Python function")
    return function


@contextmanager
def compiled_lines(module: str, line: str, replacement: str) -> Iterator[None]:
    """Load every compiled kernel anew, one of them with the line exchanged."""
    _, source = rewritten(module, line, replacement)
    package = sys.modules[module.partition(".")[0]]
    attributes = dict(vars(package))
    modules = {name: sys.modules.pop(name) for name in list(sys.modules) if is_compiled(name)}
    with tempfile.TemporaryDirectory(prefix="tinycb-planted-") as folder, numba_cache(folder):
        path = Path(folder, module.rpartition(".")[2] + ".py")
        path.write_text(source)
        try:
            spec = importlib.util.spec_from_file_location(module, path)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[module] = loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            yield
        finally:
            for name in [name for name in sys.modules if is_compiled(name)]:
                del sys.modules[name]
            sys.modules.update(modules)
            for name in set(vars(package)) - set(attributes):
                delattr(package, name)
            vars(package).update(attributes)


@contextmanager
def numba_cache(folder: str) -> Iterator[None]:
    """What Numba compiles in here is kept in `folder`, not beside the code of those who want no faults."""
    try:
        import numba
    except ImportError:
        yield
        return
    with mock.patch.object(numba.config, "CACHE_DIR", folder):
        yield
