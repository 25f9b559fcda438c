"""Where a chapter prints: a terminal, a pipe, or a notebook. The same calls for all three."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from tinycb.commands.terminal import console, glyphs_for, is_interactive
from tinycb.learn.files import tutorials
from tinycb.view.signs import BLOCKS, Glyphs

__all__ = ["WIDTH", "Screen", "in_notebook"]

WIDTH = 100  # columns at most; prose is read, not measured


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _with_links_that_open(markdown: Markdown) -> Markdown:
    """Links from the tutorials' folder as a terminal can open them."""
    for token in markdown.parsed:
        for part in token.children or ():
            target = str(part.attrs.get("href", ""))
            path = (tutorials() / target).resolve() if target and "://" not in target else None
            if path is not None and path.exists():
                part.attrs["href"] = path.as_uri()
    return markdown


class Screen:
    """Prints prose, code, tables and pictures, at most `WIDTH` columns wide."""

    def __init__(self) -> None:
        self.notebook = in_notebook()
        self._console = Console(force_jupyter=True, width=WIDTH) if self.notebook else console(sys.stdout)
        self._console.width = min(WIDTH, self._console.width)
        self.glyphs: Glyphs = BLOCKS if self.notebook else glyphs_for(sys.stdout)
        self.is_coloured = self.notebook or is_interactive(sys.stdout)

    @property
    def width(self) -> int:
        return self._console.width

    @property
    def can_ask(self) -> bool:
        """Whether somebody sits there who can answer."""
        return not self.notebook and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()

    def show(self, *parts: RenderableType) -> None:
        """Anything that rich can print, an empty line after it."""
        self._console.print(*parts, sep="\n", soft_wrap=False)
        if not self.notebook:
            self._console.print()

    def prose(self, text: str) -> None:
        """Markdown."""
        if self.notebook:
            from IPython.display import Markdown as NotebookMarkdown
            from IPython.display import display

            display(NotebookMarkdown(text))
            return
        markdown = Markdown(text, code_theme="ansi_dark", inline_code_lexer=None)
        self.show(_with_links_that_open(markdown))

    def heading(self, text: str) -> None:
        self.show(Rule(Text(text, style="bold"), align="left", characters="─" if self._is_wide else "-"))

    def code(self, text: str, caption: str | None = None, first: int | None = None) -> None:
        """Python source; with its line numbers if `first` is given."""
        syntax = Syntax(
            text,
            "python",
            theme="ansi_dark",
            background_color="default",
            line_numbers=first is not None,
            start_line=first or 1,
            word_wrap=True,
        )
        parts: list[Any] = [Text(caption, style="dim")] if caption else []
        self.show(Group(*parts, syntax if first is not None else Padding(syntax, (0, 0, 0, 2))))

    @property
    def _is_wide(self) -> bool:
        return self.glyphs is BLOCKS
