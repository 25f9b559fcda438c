"""SmolLM2-135M-Instruct: the greedy tokens of transformers' `generate`, on each of the three paths.

Two numbers decide a greedy token, so a difference counts only where transformers' own margin between its
first two logits is over 1e-5 of the largest.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_driver import PATHS, generate, make_executor

from tinycb.model.checkpoint import LoadedModel, smollm2_file
from tinycb.model.gguf_cache import folder_for
from tinycb.request import SamplingParams

pytestmark = pytest.mark.smollm2

TOPICS = [
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time, in a village by the sea,",
    "1, 1, 2, 3, 5, 8,",
    "Water boils at",
    "The three laws of motion say that",
    "Q: Why is the sky blue?\nA:",
    "SELECT name FROM users WHERE",
]
ENDINGS = ["", " In short:", "\n\n" + "The quick brown fox jumps over the lazy dog. " * 9]
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def prompts(smollm2: LoadedModel) -> list[list[int]]:
    """24 prompts of 4 to about 110 tokens."""
    assert smollm2.tokenizer is not None
    texts = [ending + topic if "fox" in ending else topic + ending for ending in ENDINGS for topic in TOPICS]
    return [smollm2.tokenizer.encode(text) for text in texts]


@pytest.fixture(scope="module")
def reference(smollm2: LoadedModel) -> torch.nn.Module:
    from transformers import LlamaForCausalLM

    folder: Path = folder_for(smollm2_file(), lambda message: None)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None  # 64 tokens, whatever they are
    return model.eval()


@torch.inference_mode()
def disagreements(reference: torch.nn.Module, prompt: list[int], output: list[int]) -> list[str]:
    """Where transformers, given the same tokens before, is sure of another one: one forward over all."""
    logits = reference(torch.tensor([prompt + output[:-1]])).logits[0, len(prompt) - 1 :]  # (new, V)
    top = logits.topk(2).values  # (new, 2)
    sure = top[:, 0] - top[:, 1] > 1e-5 * logits.abs().amax(dim=1)
    wrong = sure & (logits.argmax(dim=1) != torch.tensor(output))
    return [f"token {i}: {output[i]} for {int(logits[i].argmax())}" for i in wrong.nonzero().flatten()]


def test_greedy_tokens_in_one_forward(
    smollm2: LoadedModel, prompts: list[list[int]], reference: torch.nn.Module
) -> None:
    requests = generate(make_executor(smollm2), prompts[::4], SamplingParams(max_tokens=16), chunk=40)
    for request in requests:
        assert not disagreements(reference, request.prompt_token_ids, request.output_token_ids)


def generate_with_transformers(reference: torch.nn.Module, prompts: list[list[int]]) -> list[list[int]]:
    """`generate` on one batch, padded on the left and masked."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    output = reference.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW_TOKENS)
    return [row[longest:].tolist() for row in output]


@pytest.mark.slow
def test_greedy_tokens_are_those_of_generate(
    smollm2: LoadedModel, prompts: list[list[int]], reference: torch.nn.Module
) -> None:
    expected = generate_with_transformers(reference, prompts)
    assert len({tuple(e) for e in expected}) == len(prompts)
    params = SamplingParams(max_tokens=NEW_TOKENS)
    for path in PATHS:
        requests = generate(make_executor(smollm2, path), prompts, params, chunk=64)
        same = 0
        for request, want in zip(requests, expected, strict=True):
            if request.output_token_ids == want:
                same += 1
                continue
            found = disagreements(reference, request.prompt_token_ids, request.output_token_ids)
            assert not found, f"{path}, {request.request_id}: {found[0]}"
        print(path, same, "of", len(prompts), "equal")
        assert same >= len(prompts) - 2, f"{path}: only {same} of {len(prompts)} outputs are equal"


def test_its_weights_take_the_bytes_that_they_are_kept_in(smollm2: LoadedModel) -> None:
    pytest.importorskip("numba", reason="Numba is not installed: weights stay float32")
    model = smollm2.model
    assert (
        sum(linear.num_weights for linear in model.linears) == 134_479_872
    )  # 30 layers of 3,538,944, and a head of 28,311,552
    assert model.bytes_per_weight == pytest.approx(1.25)  # a byte, and two float32 for 32 of them
