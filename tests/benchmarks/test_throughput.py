"""`make bench` on a model of a few layers: systems in processes of their own, compared, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import throughput
from benchmarks.speed.agreement import REFERENCE, compare, find_ties, told_of
from benchmarks.speed.results import Results
from benchmarks.speed.systems import SYSTEMS
from benchmarks.speed.workloads import WORKLOADS, Workload


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["throughput", *map(str, arguments)])
    monkeypatch.delenv("VLLM_PYTHON", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    return throughput.main()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small random Llama."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.4,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_ours_and_transformers_are_served_compared_and_written_down(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(WORKLOADS, "mixed16", Workload("mixed16", 6, (3, 40), (2, 9)))
    flags = ("--out", tmp_path, "--model", model, "--workloads", "mixed16", "--rounds", "1")
    served = {"tinycb", "tinycb-static", "transformers-static-8", "transformers-continuous"}
    assert bench(monkeypatch, "--systems", *served, *flags) == 0
    results = Results.read(tmp_path / "speed.json")
    assert {entry.system for entry in results.entries} == served
    told = {entry.system: entry.same for entry in results.entries}
    assert told.pop("transformers-static-8") == REFERENCE
    assert all(same == "all" or same.endswith("ties") for same in told.values())
    assert all(len(entry.speeds) == len(entry.beside) == 1 for entry in results.entries)
    assert all((entry.memory is not None) == ("tinycb" in entry.system) for entry in results.entries)
    page = (tmp_path / "speed.md").read_text()
    assert all(SYSTEMS[name].title in page for name in served)
    out = capsys.readouterr().out
    assert "round 1 of 1: transformers, continuous" in out
    assert "left]" in out

    (tmp_path / "speed.md").unlink()
    assert bench(monkeypatch, "--redraw", "--out", tmp_path) == 0
    assert (tmp_path / "speed.md").read_text() == page


def test_the_reference_is_not_said_to_agree_with_itself() -> None:
    tokens = [[1, 2], [3, 4]]
    full, none = compare(tokens, tokens), compare(tokens, [[0, 2], [0, 4]])
    assert told_of(full, "transformers-static-8", "transformers-static-8") == REFERENCE
    assert told_of(full, "tinycb", "transformers-static-8") == "all"
    assert told_of(full, "vllm-eager", "tinycb") == "all, with tinycb"
    assert told_of(none, "tinycb", "tinycb") == "0 of 2, 0 % of tokens, with tinycb"  # two of its rounds


@pytest.mark.slow
def test_a_difference_is_a_tie_only_where_the_model_is_undecided(model: Path) -> None:
    import torch
    from transformers import LlamaForCausalLM

    work = Workload("w", 2, (4, 4), (1, 1)).make(256)
    llama = LlamaForCausalLM.from_pretrained(model).eval()
    with torch.inference_mode():
        right = [[int(llama(torch.tensor([p])).logits[0, -1].argmax())] for p in work.prompts]
    wrong = [[(token + 1) % 256] for (token,) in right]
    found = find_ties(compare(wrong, right), right, work, model)
    assert (found.ties, found.is_full) == (0, False)
    monkey = LlamaForCausalLM.from_pretrained(model)
    monkey.lm_head.weight.data[:] = monkey.lm_head.weight.data[:1]  # every token is as likely as every other
    monkey.save_pretrained(model.parent / "undecided")
    found = find_ties(compare(wrong, right), right, work, model.parent / "undecided")
    assert (found.ties, found.is_full) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--out", "no/such"], "--out no/such is not a folder"),
        (["--systems", "vllm-eager"], "vLLM needs VLLM_PYTHON"),
        (["--model", "nothing-like-it"], "unknown model 'nothing-like-it'"),
        (["--workloads", "mixed17"], "invalid choice: 'mixed17'"),
    ],
)
def test_bad_input_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    named: str,
) -> None:
    with pytest.raises(SystemExit) as exit_:
        bench(monkeypatch, *(() if "--out" in arguments else ("--out", tmp_path)), *arguments)
    assert exit_.value.code == 2
    assert named in capsys.readouterr().err


def test_redrawing_needs_something_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        bench(monkeypatch, "--redraw", "--out", tmp_path)
    assert "measure first" in capsys.readouterr().err
