"""`tinycb run --engine vllm`: what is refused before vLLM starts, and, where there is vLLM, a run of it."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec

import pytest

from tinycb.adapters import vllm_settings
from tinycb.cli import main
from tinycb.config import EngineConfig
from tinycb.replay import replay

LACKS_VLLM = pytest.mark.skipif(find_spec("vllm") is not None, reason="this interpreter has vLLM")


@pytest.fixture
def pretended(monkeypatch):
    """As if this interpreter had vLLM's CPU build."""
    found = vllm_settings.Installation(sys.executable, "0.32.0", is_cpu=True)
    monkeypatch.setattr(vllm_settings, "find", lambda: found)


@LACKS_VLLM
def test_without_vllm_one_line_says_how_to_get_it(cli, monkeypatch):
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    result = cli("run", "--engine", "vllm", "hello")
    assert result.code == 1
    assert len(result.err_lines) == 1
    assert "this Python has no vLLM; to get it: pip install 'tinycb[vllm]'" in result.err
    monkeypatch.setenv("VLLM_PYTHON", "/no/python")
    assert "VLLM_PYTHON=/no/python cannot be run" in cli("run", "--engine", "vllm", "hello").err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--block-size", "16"), "--block-size must be one, not 16"),
        (("--batching", "static"), "chunked prefill only"),
        (("--compare",), "leave out --engine vllm"),
        (("--model", "tiny-random"), "tiny-random exists in memory only"),
        (("--model", "x.gguf"), "a folder or a hub id"),
        (("--trace", "missing/t.jsonl"), "there is no folder missing"),
        (("--tensor-parallel-size", "two"), "--tensor-parallel-size must be a positive whole number"),
    ],
)
def test_bad_input_is_one_line(cli, pretended, flags, says):
    result = cli("run", "--engine", "vllm", "--quiet", "hello", *flags)
    assert result.code == 2
    assert says in result.err
    assert "Traceback" not in result.err


def test_its_flags_are_not_for_our_engine(cli):
    result = cli("run", "--tensor-parallel-size", "2", "hello")
    assert result.code == 2
    assert "give --engine vllm too" in result.err


@LACKS_VLLM
def test_what_vllm_says_becomes_one_line(cli, pretended, tmp_path):
    (tmp_path / "model").mkdir()
    result = cli("run", "--engine", "vllm", "--quiet", "--model", str(tmp_path / "model"), "hello")
    assert result.code == 1
    assert "No module named 'vllm'" in result.err


def test_what_is_not_as_asked_is_named(cli, monkeypatch):
    found = vllm_settings.Installation(sys.executable, "0.99.1", is_cpu=True)
    monkeypatch.setattr(vllm_settings, "find", lambda: found)
    result = cli("run", "--engine", "vllm", "--attention", "mask", "--model", "x.gguf", "hello")
    assert "this is vLLM 0.99.1; the recorder is tested with 0.32.0" in result.err
    assert "--block-size 32" in result.err
    assert "no counterpart of --attention" in result.err


def test_settings_are_mapped():
    config = EngineConfig(block_size=32, num_blocks=9, max_model_len=256, prefix_caching=False)
    arguments = vllm_settings.vllm_arguments(config, is_cpu=True)
    assert arguments["num_gpu_blocks_override"] == 10, "vLLM's block 0 is a placeholder"
    assert arguments["enable_prefix_caching"] is False
    assert arguments["dtype"] == "float32"
    assert "dtype" not in vllm_settings.vllm_arguments(config, is_cpu=False)
    assert vllm_settings.unmapped(EngineConfig(attention="mask", check=True)) == ["attention", "check"]


@pytest.mark.vllm
@pytest.mark.smollm2
def test_a_run_on_vllm_prints_the_same_table_and_tokens(capsys, tmp_path, monkeypatch):
    try:
        vllm_settings.find()
    except ValueError as error:
        pytest.skip(str(error))
    for name, value in {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = str(tmp_path / "ours.jsonl"), str(tmp_path / "theirs.jsonl")
    flags = ("--max-tokens", "6", "--block-size", "32", "--num-blocks", "20", "--max-model-len", "128")
    flags += ("--dtype", "float32", "--json", "The capital of France is", "Once upon a time")
    assert main(["run", "--engine", "vllm", "--trace", theirs, *flags]) == 0
    on_vllm = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["run", "--trace", ours, *flags]) == 0
    on_ours = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [a["token_ids"] for a in on_vllm] == [a["token_ids"] for a in on_ours]
    assert [a["text"] for a in on_vllm] == [a["text"] for a in on_ours]
    assert on_vllm[0]["metrics"]["ttft_steps"] == 1
    assert replay(theirs) is None
    assert main(["diff", ours, theirs, "--blocks", "exact", "--reasons"]) == 0
    assert main(["run", "--engine", "vllm", *flags, "--model", os.path.dirname(ours)]) == 1
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("tinycb run: vLLM: ")
