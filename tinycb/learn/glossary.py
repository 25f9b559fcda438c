"""The start page's list of chapters and glossary, made from the chapters themselves.

    python -m tinycb.learn.glossary        writes both into tutorials/README.md

A test compares the page with what is made here, so it cannot fall behind.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tinycb.learn.cells import read_cells
from tinycb.learn.files import chapters, tutorials

__all__ = ["Term", "chapter_list", "glossary_lines", "start_page", "terms"]

BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"


@dataclass(frozen=True, slots=True)
class Term:
    """cell: the index of the cell that defines it."""

    name: str
    meaning: str
    chapter: int
    cell: int


def terms() -> list[Term]:
    """Every `here.term("name", "meaning")` of every chapter, in order. Raises ValueError on one that is
    not two plain literals."""
    found = []
    for chapter in chapters():
        for index, cell in enumerate(read_cells(chapter.path)):
            if cell.kind != "code":
                continue
            for node in ast.walk(ast.parse(cell.text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr != "term":
                        continue
                    words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                    if len(words) != 2 or not all(isinstance(word, str) for word in words):
                        raise ValueError(
                            f"{chapter.path.name}:{cell.line + node.lineno - 1}: term takes two literals"
                        )
                    found.append(Term(str(words[0]), str(words[1]), chapter.number, index))
    return found


def chapter_list() -> list[str]:
    """A line a chapter."""
    return [f"{c.number}. [{c.title}]({c.path.name})" for c in chapters()]


def glossary_lines() -> list[str]:
    """A line a term, by the alphabet."""
    files = {chapter.number: chapter.path.name for chapter in chapters()}
    return [
        f"- **{term.name}**: {term.meaning} ([chapter {term.chapter}]({files[term.chapter]}))"
        for term in sorted(terms(), key=lambda term: term.name.casefold())
    ]


def start_page(page: str) -> str:
    """The start page with both lists as they must be today."""
    for name, lines in (("chapters", chapter_list()), ("glossary", glossary_lines())):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{chr(10).join(lines)}\n{end}{after}"
    return page


if __name__ == "__main__":
    path = tutorials() / "README.md"
    path.write_text(start_page(path.read_text("utf-8")), encoding="utf-8")
