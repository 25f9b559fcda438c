"""The screen as an SVG: what the terminal shows, in shapes that look the same everywhere."""

from __future__ import annotations

from rich.text import Text
from textual.screen import Screen

from tinycb.tui.look import Look
from tinycb.view.svg import svg

__all__ = ["screen_svg"]


def screen_svg(screen: Screen[None], look: Look, title: str) -> str:
    """title: what it shows, for those who cannot see it."""
    lines = []
    for strip in screen._compositor.render_strips():
        line = Text(no_wrap=True, end="")
        for segment in strip.simplify():
            line.append(segment.text, segment.style)
        lines.append(line)
    return svg(lines, title, look.colours["text"], look.colours["background"])
