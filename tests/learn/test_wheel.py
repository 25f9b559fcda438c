"""A wheel and an sdist carry the chapters, so that `tinycb learn` works without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.learn.harness import ROOT
from tinycb.learn.files import tutorials

PARTS = (
    "tinycb",
    "kernels",
    "tutorials",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
)
BUILD = """
import sys
from setuptools import build_meta

out = sys.argv[1]  # setuptools has arguments of its own in mind
build_meta.build_sdist(out)
build_meta.build_wheel(out)
"""

RUN = """
import sys
from pathlib import Path
import tinycb
from tinycb.cli import main

assert Path(tinycb.__file__).is_relative_to(sys.argv[1]), tinycb.__file__
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, built from a copy: building leaves things behind."""
    pytest.importorskip("setuptools", minversion="77")
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, copy / part)
    done = subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("[0-9][0-9]_*.py"))


@pytest.mark.slow
def test_the_wheel_has_every_chapter_and_no_package_beside_ours(unpacked):
    carried = unpacked / "tinycb" / "learn" / "tutorials"
    assert files_of(carried) == files_of(tutorials())
    assert (carried / "README.md").read_text("utf-8") == (tutorials() / "README.md").read_text("utf-8")
    tops = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"tinycb", "tinycb_kernels"}


@pytest.mark.slow
def test_the_sdist_has_every_chapter(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"tutorials/{name}" for name in files_of(tutorials())} <= names


@pytest.mark.slow
def test_tinycb_learn_runs_from_the_wheel_s_files(unpacked, tmp_path):
    """Listed and checked, with nothing of the checkout in reach."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(unpacked),
        "TINYCB_CACHE": str(tmp_path / "cache"),
        "OMP_WAIT_POLICY": "passive",
    }

    def learn(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-c", RUN, str(unpacked), "learn", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, out = learn()
    assert code == 0
    assert "Iteration-level scheduling" in out
    shutil.copytree(unpacked / "tinycb" / "learn" / "tutorials" / "solutions", tmp_path / "mine")
    assert learn("--check", "3", "--folder", "mine") == (0, "03_refill: passed\n")
