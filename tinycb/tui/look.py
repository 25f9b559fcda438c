"""Colours and glyphs of the visualizer: dark, light, and without any colour.

A request is its letter, and its colour goes with the letter (`tinycb.view.signs`); what it does is a glyph.
The colours keep apart under the common kinds of colour blindness, and nothing is said by colour alone.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from rich.color import Color
from rich.style import Style

from tinycb.view.signs import BLOCKS, Glyphs, colour, letter

__all__ = ["Look"]

_DARK = {
    "background": "#11151c", "panel": "#161b24", "text": "#d7dce5", "dim": "#7d8796", "faint": "#39424f",
    "accent": "#7fb4ff", "cursor": "#2a3546", "good": "#2fbf8f", "bad": "#ff7a6b", "warn": "#e6b450",
    "ink": "#10131a",
}  # fmt: skip
_LIGHT = {
    "background": "#f4f5f7", "panel": "#ffffff", "text": "#1d2430", "dim": "#66707f", "faint": "#c3c9d3",
    "accent": "#1f5fbf", "cursor": "#dbe4f2", "good": "#0b7a56", "bad": "#b3261e", "warn": "#8a5a00",
    "ink": "#10131a",
}  # fmt: skip


class Look:
    """Styles by name. mode: "dark", "light" or "plain", which has no colours."""

    def __init__(self, mode: str = "dark", glyphs: Glyphs = BLOCKS) -> None:
        self.mode = mode
        self.glyphs = glyphs
        self.colours = _LIGHT if mode == "light" else _DARK

    def style(self, name: str, *, on: str | None = None, bold: bool = False) -> Style:
        """The style of a named colour, on another."""
        return _style(self.mode, self.colours[name], self.colours[on] if on else None, bold, name)

    @cached_property
    def text(self) -> Style:
        return self.style("text")

    @cached_property
    def dim(self) -> Style:
        return self.style("dim")

    @cached_property
    def faint(self) -> Style:
        return self.style("faint")

    @cached_property
    def bold(self) -> Style:
        return self.style("text", bold=True)

    @cached_property
    def label(self) -> Style:
        return self.style("accent")

    @cached_property
    def chosen(self) -> Style:
        """Of what is selected: reversed, so that it is seen without colour too."""
        if self.mode == "plain":
            return Style(reverse=True, bold=True)
        return Style(color=self.colours["background"], bgcolor=self.colours["text"], bold=True)

    def ink(self, sign: int) -> Style:
        """A request's colour for text and glyphs."""
        return _ink(self.mode, sign)

    def solid(self, sign: int) -> Style:
        """A request's colour as a background."""
        return _solid(self.mode, sign)

    def letter(self, sign: int) -> str:
        return letter(sign)


@lru_cache(maxsize=512)
def _style(mode: str, front: str, back: str | None, bold: bool, name: str) -> Style:
    if mode == "plain":
        return Style(bold=bold or name in ("bad", "good", "accent"), dim=name in ("dim", "faint"))
    return Style(color=front, bgcolor=back, bold=bold)


@lru_cache(maxsize=4096)
def _ink(mode: str, sign: int) -> Style:
    if mode == "plain":
        return Style(bold=True)
    if mode == "light":
        red, green, blue = Color.parse(colour(sign)).get_truecolor()
        return Style(color=f"#{red * 3 // 5:02x}{green * 3 // 5:02x}{blue * 3 // 5:02x}", bold=True)
    return Style(color=colour(sign))


@lru_cache(maxsize=4096)
def _solid(mode: str, sign: int) -> Style:
    if mode == "plain":
        return Style(bold=True)
    return Style(color="#10131a", bgcolor=colour(sign), bold=True)
