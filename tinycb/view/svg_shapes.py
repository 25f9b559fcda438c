"""Blocks, lines and marks as SVG shapes, so that no font can tear bars and frames apart.

A shape is given its first cell's corner, how many cells it fills, its colour, and further attributes.
"""

from __future__ import annotations

from collections.abc import Callable

from tinycb.view.signs import BLOCKS

__all__ = ["CELL", "LINE", "SHAPES", "rect"]

CELL, LINE = 8.4, 19  # pixels
_MIDDLE = LINE / 2
_DOWN = f"v{LINE / 2 - 3:g}"  # half of a cell, less a round corner of 3 pixels
_TO_MIDDLE = f"h%s{CELL / 2 - 3:g}"

Shape = Callable[[float, float, int, str, str], list[str]]


def rect(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{more}/>'


def _full(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [rect(x, y + 1, count * CELL, LINE - 2, ink, more)]


def _half(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [rect(x, y + _MIDDLE, count * CELL, _MIDDLE - 1, ink, more)]


def _shade(opacity: float) -> Shape:
    def shade(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
        return [rect(x, y + 1, count * CELL, LINE - 2, ink, f' opacity="{opacity:g}"')]

    return shade


def _dots(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [
        f'<circle cx="{x + (i + 0.5) * CELL:g}" cy="{y + _MIDDLE:g}" r="1.4" fill="{ink}"{more}/>'
        for i in range(count)
    ]


def _dashes(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [
        f'<path d="M{x:g} {y + _MIDDLE:g}h{count * CELL:g}" stroke="{ink}" stroke-width="1.3" '
        f'stroke-dasharray="2.1 2.1"{more}/>'
    ]


def _across(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [f'<path d="M{x:g} {y + _MIDDLE:g}h{count * CELL:g}" stroke="{ink}"{more}/>']


def _stroke(path: str) -> Shape:
    """A line in each cell. path: relative, from the cell's corner."""

    def stroke(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
        moves = "".join(f"M{x + i * CELL:g} {y:g}{path}" for i in range(count))
        return [f'<path d="{moves}" stroke="{ink}" fill="none"{more}/>']

    return stroke


def _mark(*corners: tuple[float, float]) -> Shape:
    """A filled figure in each cell. corners: around the cell's middle, in pixels."""

    def mark(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
        figures = []
        for i in range(count):
            middle = x + (i + 0.5) * CELL
            points = " ".join(f"{middle + dx:g},{y + _MIDDLE + dy:g}" for dx, dy in corners)
            figures.append(f'<polygon points="{points}" fill="{ink}"{more}/>')
        return figures

    return mark


def _disc(x: float, y: float, count: int, ink: str, more: str) -> list[str]:
    return [
        f'<circle cx="{x + (i + 0.5) * CELL:g}" cy="{y + _MIDDLE:g}" r="3.6" fill="{ink}"{more}/>'
        for i in range(count)
    ]


SHAPES: dict[str, Shape] = {
    BLOCKS.prefill: _full,
    BLOCKS.decode: _half,
    BLOCKS.free: _shade(0.13),
    BLOCKS.padding: _dots,
    BLOCKS.waits: _dashes,
    "▒": _shade(0.35),
    "─": _across,
    "│": _stroke(f"m{CELL / 2:g} 0v{LINE}"),
    "╭": _stroke(f"m{CELL} {_MIDDLE:g}{_TO_MIDDLE % '-'}q-3 0-3 3{_DOWN}"),
    "╮": _stroke(f"m0 {_MIDDLE:g}{_TO_MIDDLE % ''}q3 0 3 3{_DOWN}"),
    "╰": _stroke(f"m{CELL / 2:g} 0{_DOWN}q0 3 3 3{_TO_MIDDLE % ''}"),
    "╯": _stroke(f"m{CELL / 2:g} 0{_DOWN}q0 3-3 3{_TO_MIDDLE % '-'}"),
    "╲": _stroke(f"l{CELL} {LINE}"),
    "◆": _mark((0, -4.6), (4, 0), (0, 4.6), (-4, 0)),
    "▸": _mark((-2.6, -3.6), (3.4, 0), (-2.6, 3.6)),
    "▼": _mark((-3.8, -3.2), (3.8, -3.2), (0, 3.8)),
    "●": _disc,
}
