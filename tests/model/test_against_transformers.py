"""The runner against transformers' own LlamaForCausalLM, in fp32, over random Llamas.

Three sequences go through one batch: one prefilled whole, one in chunks, one token by token. Every position's
logits must agree to 1e-4 of the largest logit, on each attention path.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_driver import PATHS, Sequences, chop, make_executor

from tinycb.model.checkpoint import load
from tinycb.model.model_config import ModelConfig

transformers = pytest.importorskip("transformers")

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "theta": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 64,
        "factor": 2.0,
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [2.0 + 0.1 * i for i in range(8)],
    },
}

#      heads  kv  head_dim  rope       tied   bias          stored      shards
GRID = [
    (4, 4, None, "default", False, (False, False), "float32", False),
    (6, 2, None, "theta", True, (False, False), "bfloat16", False),
    (8, 2, 8, "linear", False, (True, False), "float32", True),
    (8, 1, 24, "llama3", False, (False, True), "float32", False),
    (6, 2, 32, "yarn", True, (True, True), "float32", True),
    (4, 1, None, "dynamic", False, (True, True), "bfloat16", True),
    (4, 2, 16, "longrope", False, (False, False), "float32", False),
    (5, 5, 6, "default", True, (False, True), "float16", False),
    (12, 4, 4, "llama3", True, (True, False), "bfloat16", True),
    (2, 1, 64, "yarn", False, (False, False), "float32", False),
]


def make_folder(folder: Path, row: tuple[Any, ...], seed: int) -> None:
    heads, kv_heads, head_dim, rope, tied, (attention_bias, mlp_bias), dtype, shards = row
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=131,
        hidden_size=heads * 16 if head_dim is None else heads * 8,
        intermediate_size=77,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        attention_bias=attention_bias,
        mlp_bias=mlp_bias,
        rope_parameters=dict(ROPES[rope]),
        eos_token_id=[2, 7],
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 1.0 if "embed" in name else 0.15)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="60KB" if shards else "1GB")


@pytest.mark.parametrize("row", GRID, ids=lambda row: "-".join(map(str, row[:4])))
def test_logits_equal_transformers(row: tuple[Any, ...], tmp_path: Path) -> None:
    seed = GRID.index(row)
    make_folder(tmp_path, row, seed)
    assert (tmp_path / "model.safetensors.index.json").exists() is row[-1]
    reference = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    )
    loaded = load(tmp_path)
    assert loaded.eos_token_ids == (2, 7)
    rng = np.random.default_rng(seed)
    lengths = [41, 29, 12]
    sequences = [[int(t) for t in rng.integers(0, 131, n)] for n in lengths]
    with torch.inference_mode():
        expected = [reference(torch.tensor([s])).logits[0] for s in sequences]  # (length, V) each
    plans = [[20, *[1] * 21], chop(lengths[1], rng, 7), [1] * lengths[2]]
    for path in PATHS:
        for backend in ("torch", "auto"):
            executor = make_executor(loaded, path, backend=backend, block_size=4, num_blocks=40)
            got = Sequences(executor, sequences, seed).run(plans)
            for want, have in zip(expected, got, strict=True):
                error = (want - have).abs().max() / want.abs().max()
                assert error < 1e-4, f"{path}, {backend}: off by {error:.1e} of the largest logit"


def test_older_names_of_rope_parameters(tmp_path: Path) -> None:
    make_folder(tmp_path, GRID[3], 0)
    raw = json.loads((tmp_path / "config.json").read_text())
    older = dict(raw)
    rope = dict(older.pop("rope_parameters"))
    older["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    older["rope_scaling"] = rope
    assert ModelConfig.from_dict(older) == ModelConfig.from_dict(raw)


def test_a_head_of_its_own_counts_even_if_config_says_tied(tmp_path: Path) -> None:
    make_folder(tmp_path, GRID[0], 0)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"tie_word_embeddings": True}))
    reference = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = list(range(9))
    with torch.inference_mode():
        want = reference(torch.tensor([ids])).logits[0]
    (have,) = Sequences(make_executor(load(tmp_path), num_blocks=4), [ids]).run([[9]])
    assert (want - have).abs().max() < 1e-4 * want.abs().max()


@pytest.mark.parametrize("path", PATHS)
def test_padded_rows_change_nothing(path: str, tmp_path: Path) -> None:
    """Left padding and idle slots, as a static batch packs them, leave the real rows alone."""
    make_folder(tmp_path, GRID[1], 3)
    loaded = load(tmp_path)
    sequences = [list(range(3, 24)), list(range(50, 57)), [9]]
    plans = [[15, 1, 1, 1, 1, 1, 1], [5, 1, 1], [1]]
    plain = Sequences(make_executor(loaded, path, num_blocks=12, block_size=4), sequences).run(plans)
    padded = Sequences(make_executor(loaded, path, num_blocks=12, block_size=4), sequences).run(
        plans, pad=True
    )
    for want, have in zip(plain, padded, strict=True):
        assert (want - have).abs().max() < 1e-5 * want.abs().max()
