"""Source code by name, read from the file as it is today, so that what a chapter shows cannot go stale.

Nothing is imported: a name is looked up in the module's syntax tree. So a decorated function, a compiled
kernel and a constant are found alike.
"""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Excerpt", "find_in_file", "find_source"]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """file: as `tinycb/engine.py`. first: its first line. text: indented as little as can be."""

    file: str
    first: int
    text: str

    @property
    def last(self) -> int:
        return self.first + self.text.count("\n")


def find_source(name: str, start: str | None = None, end: str | None = None) -> Excerpt:
    """The source of `module:Class.method`, `module:function`, `module:CONSTANT`, or of a whole `module`.

    start, end: texts; the excerpt then goes from the first line that holds `start` to the first line from
    there on that holds `end`, both included.

    Raises LookupError, naming what is gone.
    """
    module, _, inner = name.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise LookupError(f"show_source: there is no module {module}")
    path = Path(spec.origin)
    file = module.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
    first, last = find_in_file(path, inner) if inner else (1, len(path.read_text("utf-8").splitlines()))
    lines = path.read_text("utf-8").splitlines()[first - 1 : last]
    begin = _holding(lines, start, 0, name) if start is not None else 0
    stop = _holding(lines, end, begin, name) if end is not None else len(lines) - 1
    return Excerpt(file, first + begin, textwrap.dedent("\n".join(lines[begin : stop + 1])))


def find_in_file(path: Path, inner: str) -> tuple[int, int]:
    """First and last line of `Class.method` and the like. Raises LookupError if the file has no such name."""
    body: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body
    found: ast.stmt | None = None
    for part in inner.split("."):
        found = next((node for node in _flat(body) if part in _names(node)), None)
        if found is None:
            raise LookupError(f"{path.name} has no {inner}")
        body = getattr(found, "body", [])
    assert found is not None
    decorators = getattr(found, "decorator_list", [])
    first = min([found.lineno, *(decorator.lineno for decorator in decorators)])
    return first, found.end_lineno or found.lineno


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements, those inside `if` and `try` included."""
    flat = []
    for node in body:
        flat.append(node)
        if isinstance(node, ast.If | ast.Try):
            handlers = [s for h in getattr(node, "handlers", []) for s in h.body]
            flat += _flat([*node.body, *node.orelse, *handlers])
    return flat


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _holding(lines: list[str], text: str, begin: int, name: str) -> int:
    for index in range(begin, len(lines)):
        if text in lines[index]:
            return index
    raise LookupError(f"show_source: {name} has no line with {text!r}")
