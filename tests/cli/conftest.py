"""Calls the command line in this process, and in another one where that is what is tested."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tinycb.cli import main

TINY = ("--model", "tiny-random", "--max-tokens", "4", "--num-blocks", "256")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def err_lines(self) -> list[str]:
        return self.err.splitlines()


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """`cli("run", "--quiet", "hello")` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")

    def call(*arguments: str) -> Result:
        code = main(arguments)
        return Result(code, *capsys.readouterr())

    return call


def start(
    arguments: Sequence[str], env: dict[str, str] | None = None, **settings: object
) -> subprocess.Popen[str]:
    """`python -m tinycb` with these arguments."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", **(env or {})}
    environment.pop("NO_COLOR", None) if env is None or "NO_COLOR" not in env else None
    return subprocess.Popen([sys.executable, "-m", "tinycb", *arguments], env=environment, **settings)  # type: ignore[call-overload,no-any-return]
