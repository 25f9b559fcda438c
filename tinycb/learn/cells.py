"""A chapter's file as cells: the py:percent form that Jupyter opens through jupytext.

    # %% [markdown]
    # Prose, in Markdown, each line behind a `#`.

    # %%
    code

    # %% tags=["hide-input"]
    code that is run and not shown

What comes before the first marker, such as a header that Jupyter wrote, belongs to no cell. Runs nothing:
`runner.py` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cell", "read_cells"]

_MARKER = re.compile(r"^# %%(?P<rest>.*)$")


@dataclass(frozen=True, slots=True)
class Cell:
    """kind: "markdown" or "code". line: of the file, where `text` begins. is_shown: code that is printed."""

    kind: str
    text: str
    line: int
    is_shown: bool = True


def read_cells(path: Path) -> list[Cell]:
    """The cells of a file, in order, empty ones left out.

    Raises ValueError, naming the line, if a line of prose does not begin with `#`.
    """
    cells: list[Cell] = []
    kind, shown, first, lines = "", True, 0, list[str]()

    def close() -> None:
        text = "\n".join(lines)
        if kind and text.strip():
            empty = len(text) - len(text.lstrip("\n"))
            cells.append(Cell(kind, text.strip("\n"), first + empty, shown))

    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        marker = _MARKER.match(line)
        if marker is not None:
            close()
            kind = "markdown" if "[markdown]" in marker["rest"] else "code"
            shown, first, lines = "hide-input" not in marker["rest"], number + 1, []
        elif kind == "markdown":
            if line.strip() and not line.startswith("#"):
                raise ValueError(f"{path.name}:{number}: a line of prose must begin with #")
            lines.append(line[2:] if line.startswith("# ") else line[1:])
        elif kind:
            lines.append(line)
    close()
    return cells
