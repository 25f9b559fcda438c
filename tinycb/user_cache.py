"""The folder where tinycb keeps what took long to make: converted models, the figures of this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_root"]


def cache_root() -> Path:
    """`platformdirs.user_cache_dir("tinycb")`, or where TINYCB_CACHE points. It need not exist yet."""
    if os.environ.get("TINYCB_CACHE"):
        return Path(os.environ["TINYCB_CACHE"]).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("tinycb"))
