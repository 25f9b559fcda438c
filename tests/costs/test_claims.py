"""The page of claims: written whole from small samples, with verdicts that follow the figures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import claims


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page of two small made samples was written."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("claims")
    rng = random.Random(0)
    for name in claims.SAMPLES.values():
        rows = [f"2023-11-16 18:17:{i:02}.5,{rng.randint(50, 3000)},{rng.randint(5, 90)}" for i in range(40)]
        (folder / name).write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "DOCS", folder)
        patch.setattr("sys.argv", ["claims", "--no-real", "--data", str(folder)])
        claims.main()
    return folder


@pytest.fixture
def page(folder: Path) -> str:
    return (folder / "claims.md").read_text()


def test_every_claim_has_a_verdict_and_its_table(page: str) -> None:
    sections = page.split("\n## ")[1:]
    assert len(sections) == 7
    for section in sections[:-1]:
        assert "**It holds.**" in section or "**It does not hold here.**" in section
        assert "| --- |" in section
    assert "131,072 bytes, 4,096 of them 512 MiB" in page


def test_every_table_says_exact_or_modelled(page: str) -> None:
    heads = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    titles = [head for head in heads if "exact" in head or "modelled" in head]
    assert len(titles) == 6


def test_figures_stand_beside_the_page(page: str, folder: Path) -> None:
    for name in ("claims-course.svg", "claims-sweep.svg"):
        assert name in page
        assert (folder / name).is_file()


def test_a_verdict_is_chosen_by_what_it_is_given() -> None:
    assert claims.verdict(True, "yes", "no") == "**It holds.** yes\n"
    assert claims.verdict(False, "yes", "no") == "**It does not hold here.** no\n"
