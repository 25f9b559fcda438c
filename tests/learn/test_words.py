"""What the prose says stays true: no number typed, no name gone, every term defined once and in time."""

import re
from functools import cache

import pytest

from tests.learn.harness import CHAPTERS, ROOT
from tinycb.learn.cells import read_cells
from tinycb.learn.files import tutorials
from tinycb.learn.glossary import start_page, terms

CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")
ALLOWED = re.compile(
    r"^# \d+\. |\bchapters? \d+(?:(?:, | and | to )\d+)*|\bvLLM 0\.32\.0|\((?:\w+ et al\., )?\w+ \d{4}\)"
)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
each = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.path.stem)


@cache
def words_of_the_project() -> set[str]:
    """Every word of the sources, and the names of its files and folders."""
    words = set()
    for folder in ("tinycb", "kernels", "tutorials"):
        for path in (ROOT / folder).rglob("*.py"):
            words.add(path.name)
            if not path.is_relative_to(ROOT / "tutorials") or path.parent.name in ("exercises", "checks"):
                words |= set(re.findall(r"\w+", path.read_text("utf-8")))
    return words


def prose(chapter) -> list[str]:
    return [cell.text for cell in read_cells(chapter.path) if cell.kind == "markdown"]


def code(chapter) -> str:
    return "\n".join(cell.text for cell in read_cells(chapter.path) if cell.kind == "code")


@each
def test_no_number_is_typed_into_prose(chapter):
    """Numbers come from the run, through `say`; a chapter's own number and a version may stand."""
    for text in prose(chapter):
        text = LINK.sub("", CODE.sub("", FENCE.sub("", text)))
        text = ALLOWED.sub("", text)
        assert re.findall(r".{0,30}\d.{0,30}", text) == [], chapter.path.name


@each
def test_a_name_in_prose_exists(chapter):
    """What stands in backticks is a path of the project, or is made of words that its sources have."""
    known = words_of_the_project() | set(re.findall(r"\w+", code(chapter)))
    for text in prose(chapter):
        for name in CODE.findall(FENCE.sub("", text)):
            if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", name) and not name.startswith("vllm/"):
                assert (ROOT / name).exists(), f"{chapter.path.name}: there is no {name}"
                continue
            gone = [word for word in re.findall(r"[A-Za-z_]\w+", name) if word not in known]
            assert gone == [], f"{chapter.path.name}: `{name}` has words that no source has"


@each
def test_a_link_leads_somewhere(chapter):
    texts = [*prose(chapter), code(chapter)]
    targets = [target for text in texts for target in LINK.findall(text) if "://" not in target]
    numbers = {c.number for c in CHAPTERS}
    for target in targets:
        path = (tutorials() / target.partition("#")[0]).resolve()
        number = re.match(r"(\d\d)_", path.name)
        if number and int(number[1]) not in numbers and path.parent == tutorials():
            continue  # a chapter that is still to be written
        assert path.exists(), f"{chapter.path.name}: {target}"


def test_a_term_is_defined_once_and_used_no_earlier():
    """Earlier chapters do not use it, nor do earlier cells; headings and pointers ahead may."""
    known = terms()
    names = [term.name.casefold() for term in known]
    assert sorted(names) == sorted(set(names)), "a term is defined twice"
    for term in known:
        pattern = re.compile(rf"\b{re.escape(term.name)}s?\b", re.I)
        for chapter in CHAPTERS:
            for index, cell in enumerate(read_cells(chapter.path)):
                if (chapter.number, index) >= (term.chapter, term.cell):
                    break
                if cell.kind != "markdown":
                    continue
                lines = [line for line in cell.text.splitlines() if not line.startswith("#")]
                used = pattern.search(" ".join(lines))
                assert used is None, (
                    f"{chapter.path.name}:{cell.line} uses {term.name!r}, defined in chapter {term.chapter}"
                )


@each
def test_what_is_bold_in_prose_is_a_term_that_has_been_defined(chapter):
    """So a reader can look up whatever stands out; a single stressed word is in *italics*."""
    known = {term.name.casefold() for term in terms() if term.chapter <= chapter.number}
    for text in prose(chapter):
        for name in re.findall(r"\*\*(.+?)\*\*", FENCE.sub("", text)):
            assert name.casefold() in known, f"{chapter.path.name}: **{name}** is no term defined by then"


def test_the_start_page_has_today_s_chapters_and_glossary():
    """`python -m tinycb.learn.glossary` writes them."""
    page = (tutorials() / "README.md").read_text("utf-8")
    assert start_page(page) == page


@pytest.mark.vllm
def test_every_name_of_vllm_exists_in_the_version_that_is_named():
    from pathlib import Path

    from tinycb.adapters import vllm_settings
    from tinycb.learn.source import find_in_file
    from tinycb.learn.toolkit import VLLM_VERSION

    try:
        found = vllm_settings.find()
    except ValueError as error:
        pytest.skip(str(error))
    if found.version != VLLM_VERSION:
        pytest.skip(f"this is vLLM {found.version}; the chapters name {VLLM_VERSION}")
    folder = next(Path(found.python).absolute().parent.parent.glob("lib/python*/site-packages"))
    call = re.compile(r"here\.vllm\(\s*\"([^\"]+)\",\s*\"([^\"]+)\"")
    for chapter in CHAPTERS:
        for file, name in call.findall(code(chapter)):
            find_in_file(folder / file, name)
