"""One line of cells: text is put anywhere on it, and it comes out as few segments.

Knows nothing of requests. Next: `drawing.py`.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from tinycb.view.signs import printable

__all__ = ["Line", "clip"]


def clip(text: str, width: int, cut: str = "…") -> str:
    """Text on one line, in at most `width` cells."""
    text = printable(text.replace("\n", "⏎"), one_line=False).replace("\t", "⇥")
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, room = "", width - 1
    for character in text:
        room -= cell_len(character)
        if room < 0:
            break
        kept += character
    return kept + cut


class Line:
    """`width` cells, blank to begin with. What does not fit is cut off."""

    __slots__ = ("cells", "styles", "width")

    def __init__(self, width: int, style: Style) -> None:
        self.width = width
        self.cells = [" "] * width
        self.styles = [style] * width

    def put(self, x: int, text: str, style: Style, limit: int | None = None) -> int:
        """Write `text` from cell x on, up to cell `limit`; returns the cell after it."""
        end = self.width if limit is None else min(limit, self.width)
        if text.isascii():
            if x < 0:
                text, x = text[-x:], 0
            text = text[: max(0, end - x)]
            stop = x + len(text)
            self.cells[x:stop] = text
            self.styles[x:stop] = [style] * len(text)
            return stop
        for character in text:
            size = cell_len(character)
            if size == 0:  # it goes with the one before
                if 0 < x <= end:
                    self.cells[x - 1] += character
                continue
            if x + size > end:
                break
            if x >= 0:
                self.cells[x] = character
                self.styles[x] = style
                if size == 2:
                    self.cells[x + 1] = ""
                    self.styles[x + 1] = style
            x += size
        return x

    def fill(self, start: int, stop: int, character: str, style: Style) -> None:
        start, stop = max(0, start), min(stop, self.width)
        if start < stop:
            self.cells[start:stop] = [character] * (stop - start)
            self.styles[start:stop] = [style] * (stop - start)

    def tint(self, start: int, stop: int, style: Style) -> None:
        """Lay a style over what is there."""
        for x in range(max(0, start), min(stop, self.width)):
            self.styles[x] = self.styles[x] + style

    def segments(self) -> list[Segment]:
        """Runs of equal style."""
        result: list[Segment] = []
        cells, styles, start = self.cells, self.styles, 0
        for x in range(1, self.width + 1):
            if x == self.width or styles[x] is not styles[start]:
                result.append(Segment("".join(cells[start:x]), styles[start]))
                start = x
        return result

    @property
    def plain(self) -> str:
        return "".join(self.cells).rstrip()
