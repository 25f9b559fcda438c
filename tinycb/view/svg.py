"""Lines of a picture as one SVG that looks the same everywhere.

Blocks and dots are drawn as shapes and not as letters, so no font can tear the bars apart, and the file asks
for nothing from outside. Knows nothing of steps or requests: it gets styled lines of text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tinycb.view.svg_shapes import CELL, LINE, SHAPES, rect

__all__ = ["svg"]

FONT, MARGIN = 14, 22  # pixels
INK, PAPER, FAINT = "#d7dce2", "#12171e", 0.62
_ANSI = [
    (29, 35, 42), (240, 98, 98), (47, 191, 143), (217, 200, 50),
    (86, 160, 233), (204, 121, 167), (77, 190, 210), (215, 220, 226),
]  # fmt: skip
_THEME = TerminalTheme((18, 23, 30), (215, 220, 226), _ANSI, _ANSI)
_WORDS = re.compile(r"\S+(?: \S+)*")  # up to a gap, which some programs draw as one blank
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


def svg(lines: Sequence[Text], title: str, ink: str = INK, paper: str = PAPER) -> str:
    """The lines on a panel. title: what it shows, for those who cannot see it. ink, paper: where a line has
    no colours of its own.
    """
    width = max((line.cell_len for line in lines), default=0) * CELL + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    console = Console(file=io.StringIO(), color_system="truecolor", force_terminal=True, width=1000)
    parts = []
    for row, line in enumerate(lines):
        column = 0
        for segment in Text(end="").append_text(line).render(console):  # so that its base style counts
            if segment.text:
                parts += _run(segment.text, segment.style or Style(), column, row, ink, paper)
                column += segment.cell_length
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width:g}" height="{height:g}" rx="10" fill="{paper}"/>\n'
        f"<style>rect{{shape-rendering:crispEdges}}</style>\n"
        f'<g font-family="{_FONTS}" font-size="{FONT}">\n' + "\n".join(parts) + "\n</g>\n</svg>\n"
    )


def _run(text: str, style: Style, column: int, row: int, ink: str, ground: str) -> list[str]:
    """Text of one style: its background, then letters as text and signs as shapes."""
    ink, paper = _colours(style, ink, ground)
    x, y = MARGIN + column * CELL, MARGIN + row * LINE
    opacity = f' opacity="{FAINT}"' if style.dim else ""
    parts = []
    if paper is not None and paper != ground:
        parts.append(rect(x, y, len(text) * CELL, LINE, paper))
    start = 0
    while start < len(text):
        end = start + 1
        if (shape := SHAPES.get(text[start])) is not None:
            while end < len(text) and text[end] == text[start]:
                end += 1
            parts += shape(x + start * CELL, y, end - start, ink, opacity)
        else:
            while end < len(text) and text[end] not in SHAPES:
                end += 1
            slant = ' font-weight="bold"' if style.bold else ""
            slant += ' font-style="italic"' if style.italic else ""
            for piece in _WORDS.finditer(text, start, end):
                at = x + piece.start() * CELL
                parts.append(
                    f'<text x="{at:g}" y="{y + 0.72 * LINE:g}" fill="{ink}"{slant}{opacity} '
                    f'textLength="{len(piece[0]) * CELL:g}">{escape(piece[0])}</text>'
                )
        start = end
    return parts


def _colours(style: Style, ink: str, ground: str) -> tuple[str, str | None]:
    front = style.color.get_truecolor(_THEME).hex if style.color is not None else ink
    back = style.bgcolor.get_truecolor(_THEME, foreground=False).hex if style.bgcolor is not None else None
    return (back or ground, front) if style.reverse else (front, back)
