"""Numba's compiled loops, kept fresh: `python -m tinycb_kernels.renew` after a change to a numba_*.py file.

Numba keeps what it has compiled until the file of the outermost function changes, and does not see that the
functions which that one calls, in other files, have changed. So each file with an outermost function holds a
number, PARTS_VERSION, made from all of them: if one changes, it changes, and with it the file that holds it.
"""

import hashlib
import re
from pathlib import Path

__all__ = ["renew", "stale_files", "version"]

FOLDER = Path(__file__).parent
LINE = re.compile(r'^PARTS_VERSION = "(\w*)".*$', re.MULTILINE)


def version() -> str:
    """All numba_*.py files, but for the line with the number itself, in eight letters."""
    sources = (LINE.sub("", path.read_text()) for path in sorted(FOLDER.glob("numba_*.py")))
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:8]


def stale_files() -> list[Path]:
    """The files with kept loops that do not hold the number."""
    have = {path: path.read_text() for path in sorted(FOLDER.glob("numba_*.py"))}
    kept = {path: LINE.findall(text) for path, text in have.items() if "cache=True" in text}
    return [path for path, found in kept.items() if found != [version()]]


def renew() -> None:
    """Write the number into each file that has the line."""
    for path in stale_files():
        path.write_text(LINE.sub(f'PARTS_VERSION = "{version()}"  # see renew.py', path.read_text()))


if __name__ == "__main__":
    renew()
    for left in stale_files():
        raise SystemExit(f'{left}: has kept loops, but no line PARTS_VERSION = ""')
