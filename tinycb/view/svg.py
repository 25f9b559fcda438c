"""Lines of a picture as one SVG that looks the same everywhere.

Blocks and dots are drawn as shapes and not as letters, so no font can tear the bars apart, and the file asks
for nothing from outside. Knows nothing of steps or requests: it gets styled lines of text.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tinycb.view.signs import BLOCKS

__all__ = ["svg"]

CELL, LINE, FONT, MARGIN = 8.4, 19, 14, 22  # pixels
INK, PAPER, FAINT = "#d7dce2", "#12171e", 0.62
_ANSI = [
    (29, 35, 42), (240, 98, 98), (47, 191, 143), (217, 200, 50),
    (86, 160, 233), (204, 121, 167), (77, 190, 210), (215, 220, 226),
]  # fmt: skip
_THEME = TerminalTheme((18, 23, 30), (215, 220, 226), _ANSI, _ANSI)
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


def svg(lines: Sequence[Text], title: str) -> str:
    """The lines on a dark panel. title: what it shows, for those who cannot see it."""
    width = max((line.cell_len for line in lines), default=0) * CELL + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    console = Console(file=io.StringIO(), color_system="truecolor", force_terminal=True, width=1000)
    parts = []
    for row, line in enumerate(lines):
        column = 0
        for segment in Text(end="").append_text(line).render(console):  # so that its base style counts
            if segment.text:
                parts += _run(segment.text, segment.style or Style(), column, row)
                column += segment.cell_length
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width:g}" height="{height:g}" rx="10" fill="{PAPER}"/>\n'
        f'<g font-family="{_FONTS}" font-size="{FONT}" xml:space="preserve">\n'
        + "\n".join(parts)
        + "\n</g>\n</svg>\n"
    )


def _run(text: str, style: Style, column: int, row: int) -> list[str]:
    """Text of one style: its background, then letters as text and signs as shapes."""
    ink, paper = _colours(style)
    x, y = MARGIN + column * CELL, MARGIN + row * LINE
    opacity = f' opacity="{FAINT}"' if style.dim else ""
    parts = []
    if paper is not None:
        parts.append(_rect(x, y, len(text) * CELL, LINE, paper))
    start = 0
    while start < len(text):
        end = start + 1
        if (shape := _SHAPES.get(text[start])) is not None:
            while end < len(text) and text[end] == text[start]:
                end += 1
            parts += shape(x + start * CELL, y, end - start, ink, opacity)
        else:
            while end < len(text) and text[end] not in _SHAPES:
                end += 1
            if piece := text[start:end].strip():
                at = start + len(text[start:end]) - len(text[start:end].lstrip())
                weight = ' font-weight="bold"' if style.bold else ""
                parts.append(
                    f'<text x="{x + at * CELL:g}" y="{y + 0.72 * LINE:g}" fill="{ink}"{weight}{opacity} '
                    f'textLength="{len(piece) * CELL:g}">{escape(piece)}</text>'
                )
        start = end
    return parts


def _colours(style: Style) -> tuple[str, str | None]:
    ink = style.color.get_truecolor(_THEME).hex if style.color is not None else INK
    paper = style.bgcolor.get_truecolor(_THEME, foreground=False).hex if style.bgcolor is not None else None
    if style.reverse:
        return paper or PAPER, ink
    return ink, paper


def _rect(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{more}/>'


def _full(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [_rect(x, y + 1, count * CELL, LINE - 2, ink, more)]


def _half(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [_rect(x, y + LINE / 2, count * CELL, LINE / 2 - 1, ink, more)]


def _empty(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [_rect(x, y + 1, count * CELL, LINE - 2, ink, ' opacity="0.13"')]


def _dots(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    middle = y + LINE / 2
    return [
        f'<circle cx="{x + (i + 0.5) * CELL:g}" cy="{middle:g}" r="1.4" fill="{ink}"{more}/>'
        for i in range(count)
    ]


def _dashes(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [
        f'<path d="M{x:g} {y + LINE / 2:g}h{count * CELL:g}" stroke="{ink}" stroke-width="1.3" '
        f'stroke-dasharray="2.1 2.1"{more}/>'
    ]


_SHAPES = {
    BLOCKS.prefill: _full,
    BLOCKS.decode: _half,
    BLOCKS.free: _empty,
    BLOCKS.padding: _dots,
    BLOCKS.waits: _dashes,
}
