"""Small things that a chapter prints, as a reader would type or say them."""

from __future__ import annotations

import shlex
from pathlib import Path

__all__ = ["short_path"]


def short_path(path: Path) -> str:
    """A path as one would type it in a shell: from here, or from the home folder, if it lies there."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return prefix + shlex.quote(str(path.relative_to(base)))
    return shlex.quote(str(path))
