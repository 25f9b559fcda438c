"""The README's pictures show what the screen shows now. `make pictures` draws them anew."""

import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.pictures import LOOKS, VIEWS, draw, file_name

ROOT = Path(__file__).parents[2]
_LINE = re.compile(r"\.py:\d+")  # moves with the code


def words(svg: str) -> list[str]:
    """Every text of a picture, with its place on the screen; of a line number, only that it is one."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    found = []
    for element in texts:
        text = element.text or ""
        is_line = _LINE.search(text) is not None
        found.append(_LINE.sub(".py", text) if is_line else f"{element.get('x')} {element.get('y')} {text}")
    return found


def test_the_pictures_are_those_of_the_screen() -> None:
    drawn = list(draw())
    assert len(drawn) == len(VIEWS) * len(LOOKS)
    for view, look, svg in drawn:
        stored = (ROOT / "docs" / file_name(view, look)).read_text(encoding="utf-8")
        assert words(svg) == words(stored), f"{view.name}, {look}: make pictures draws it anew"
        assert view.title in stored


def test_the_readme_shows_each_picture_and_says_what_it_is() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for view in VIEWS:
        for look in LOOKS:
            assert f"docs/{file_name(view, look)}" in readme


def test_a_picture_asks_nothing_of_another_machine() -> None:
    for view in VIEWS:
        for look in LOOKS:
            svg = (ROOT / "docs" / file_name(view, look)).read_text(encoding="utf-8")
            assert set(re.findall(r"https?://[^\s\"']+", svg)) == {"http://www.w3.org/2000/svg"}
