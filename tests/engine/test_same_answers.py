"""The project's claim, on a real model: however it is batched and however it attends, a request's tokens are
those it gets alone."""

import itertools

import pytest
import torch

from tests.engine.harness import POLICIES, finish
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import LlamaExecutor
from tinycb.model.checkpoint import LoadedModel, load

PATHS = ["mask", "varlen", "paged"]
LENGTHS = [(5, 9), (40, 6), (1, 12), (17, 1), (16, 8), (33, 10)]  # prompt, output
CUDA = torch.cuda.is_available()


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny-random")


def requests() -> list[Request]:
    made = []
    for number, (prompt, output) in enumerate(LENGTHS):
        tokens = [(7 * number + 3 * i * i + 1) % 256 for i in range(prompt)]
        made.append(Request(f"q{number}", tokens, SamplingParams(max_tokens=output, ignore_eos=True)))
    made.append(Request("twin", made[1].token_ids, SamplingParams(max_tokens=9, ignore_eos=True)))
    drawn = SamplingParams(max_tokens=9, temperature=1.3, top_k=40, top_p=0.9, seed=11)
    made.append(Request("drawn", [9, 8, 7], drawn))
    return made


def serve(tiny: LoadedModel, **config) -> tuple[dict[str, list[int]], list]:
    """Serve all, two at first and one more a step; returns the tokens and the records."""
    settings = EngineConfig(check=True, block_size=8, **({"num_blocks": 60} | config))
    engine = Engine(settings, LlamaExecutor(tiny, settings), tiny.tokenizer)
    records = []
    queue = requests()
    for request in queue[:2]:
        engine.add_request(request)
    for request in queue[2:]:
        records.append(engine.step())
        engine.add_request(request)
    records += finish(engine)
    return {name: output.token_ids for name, output in engine.outputs.items()}, records


@pytest.fixture(scope="module")
def alone(tiny) -> dict[str, list[int]]:
    tokens, _ = serve(tiny, max_num_seqs=1, batching="continuous", prefix_caching=False)
    assert len({tuple(t) for t in tokens.values()}) == len(tokens), "the model says different things"
    return tokens


@pytest.mark.parametrize(("batching", "attention"), list(itertools.product(POLICIES, PATHS)))
def test_every_way_of_batching_and_attending_gives_the_tokens_of_a_request_alone(
    tiny, alone, batching, attention
):
    tokens, records = serve(tiny, batching=batching, attention=attention, max_num_batched_tokens=24)
    assert tokens == alone
    assert max(len(record.scheduled) for record in records) > 2, "they did run together"


@pytest.mark.parametrize("attention", PATHS)
def test_a_static_batch_runs_its_padding_and_holds_its_answers(tiny, alone, attention):
    tokens, records = serve(tiny, batching="static", attention=attention, max_num_seqs=8)
    assert tokens == alone
    padded = sum(record.num_padded for record in records)
    for record in records:
        packed = record.packed if record.scheduled else None
        assert record.num_padded == (packed.num_padded if packed is not None and record.rows else 0)
    assert padded > 0
    held = [record for record in records if record.finished and not record.returned]
    assert held, "an answer that is done early waits for its batch"


@pytest.mark.parametrize("attention", PATHS)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preemption_and_prefix_hits_change_no_token(tiny, alone, attention, prefix_caching):
    tokens, records = serve(
        tiny,
        attention=attention,
        num_blocks=9,
        reserve_full_prompt=False,
        max_num_batched_tokens=16,
        prefix_caching=prefix_caching,
    )
    assert tokens == alone
    assert sum(len(record.preempted) for record in records) > 0
    assert any(record.prefix_hits for record in records) == prefix_caching


@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
def test_the_block_size_changes_no_token(tiny, alone, block_size):
    engine = Engine(
        config := EngineConfig(block_size=block_size, num_blocks=-(-400 // block_size), check=True),
        LlamaExecutor(tiny, config),
        tiny.tokenizer,
    )
    for request in requests():
        engine.add_request(request)
    finish(engine)
    assert {name: output.token_ids for name, output in engine.outputs.items()} == alone


@pytest.mark.parametrize("attention", PATHS)
def test_plain_torch_gives_the_same_tokens(tiny, alone, attention):
    assert serve(tiny, attention=attention, backend="torch")[0] == alone


@pytest.mark.parametrize("attention", ["varlen", "paged"])
def test_the_triton_kernels_serve_with_equal_tokens(attention):
    """Compiled on a GPU; elsewhere through Triton's interpreter, on a load small enough for it."""
    device = "cuda" if CUDA else "cpu"
    tiny = load("tiny-random", device=device, dtype="float32")
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [200, 100]]
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    tokens = {}
    for backend in ("triton", "torch"):
        config = EngineConfig(attention=attention, backend=backend, num_blocks=16, device=device, check=True)
        engine = Engine(config, LlamaExecutor(tiny, config))
        tokens[backend] = [output.token_ids for output in engine.generate(prompts, params)]
    assert tokens["triton"] == tokens["torch"]
