"""Decode graphs without a GPU: what is padded and chosen, and that a recorded step's inputs are all replaced.

In place of a CUDA graph stands the function itself, run again on the same tensors: what a step leaves in them
from the one before shows in its tokens.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tinycb import Engine, EngineConfig, SamplingParams
from tinycb.executors import LlamaExecutor
from tinycb.model.checkpoint import load
from tinycb.model.decode_graphs import DecodeGraphs, pad, padded_size, record_cuda_graph, with_room
from tinycb.packing import Row, pack
from tinycb_kernels.backends import has_module, triton_is_interpreted
from tinycb_kernels.triton_plan import plan_paged

PROMPTS = [[5, 6, 7], list(range(1, 40)), [9], list(range(30, 50)), [3, 3, 3, 3, 3]]


class Recorder:
    """Counts what is recorded and repeated, and repeats it by running it."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1

        def replay() -> Tensor:
            self.replayed += 1
            return run()

        return replay


def engine(backend: str, **settings: object) -> tuple[Engine, LlamaExecutor]:
    config = EngineConfig(
        backend=backend, num_blocks=64, block_size=8, max_num_seqs=4, max_model_len=96, dtype="float32",
        device="cpu", **settings,
    )  # fmt: skip
    executor = LlamaExecutor(load("tiny-random", device="cpu"), config)
    return Engine(config, executor), executor


def with_graphs(executor: LlamaExecutor, backend: str) -> tuple[DecodeGraphs, Recorder]:
    recorder = Recorder()
    executor.graphs = DecodeGraphs(executor.model, executor.cache, backend, 4, 96, recorder)
    return executor.graphs, recorder


def needs_triton(backend: str) -> None:
    if backend == "triton" and not (has_module("triton") and triton_is_interpreted()):
        pytest.skip("TRITON_INTERPRET=1 came too late, or triton is not installed")


@pytest.mark.parametrize(("backend", "max_tokens"), [("numba", 24), ("torch", 24), ("triton", 5)])
def test_a_model_samples_the_same_tokens_with_graphs(backend: str, max_tokens: int) -> None:
    """Requests come and go, so sizes change both ways, and rows of nobody stand where somebody was."""
    needs_triton(backend)
    lengths = [max(2, max_tokens - 3 * i) for i in range(5)]
    params = [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths]
    plain, _ = engine(backend, prefix_caching=False)
    expected = [output.token_ids for output in plain.generate(PROMPTS, params)]
    graphed, executor = engine(backend, prefix_caching=False)
    graphs, recorder = with_graphs(executor, backend)
    assert [output.token_ids for output in graphed.generate(PROMPTS, params)] == expected
    assert 0 < recorder.recorded == len(graphs.recorded) <= recorder.replayed
    assert {size for size, _ in graphs.recorded} <= {1, 2, 4}
    assert all(items >= size for size, items in graphs.recorded)


def test_only_steps_of_one_token_a_request_fit() -> None:
    _, executor = engine("torch")
    graphs, _ = with_graphs(executor, "torch")

    def batch(*num_tokens: int, pad: bool = False) -> object:
        rows = [Row(str(i), [1] * 9, 0 if n > 1 else 4, n, [i, i + 8]) for i, n in enumerate(num_tokens)]
        return pack(rows, 8, pad=pad)

    assert graphs.fits(batch(1))
    assert graphs.fits(batch(1, 1, 1, 1))
    assert not graphs.fits(batch(1, 3)), "a prompt has other sizes every time"
    assert not graphs.fits(batch(1, 1, 1, 1, 1)), "more than max_num_seqs"
    assert not graphs.fits(batch(2, 0)), "two tokens for two requests, and one of them idles"
    assert not graphs.fits(batch(1, 0, pad=True))
    assert not graphs.fits(pack([], 8))


def test_sizes_waste_at_most_a_third_of_their_rows() -> None:
    sizes = [padded_size(n) for n in range(1, 300)]
    assert sizes == sorted(sizes)
    assert all(n <= size < 2 * n for n, size in enumerate(sizes, 1))
    assert all(n / size >= 2 / 3 for n, size in enumerate(sizes, 1) if n >= 17)
    assert sorted(set(sizes)) == [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384]


def test_rows_of_nobody_write_nothing_and_see_nothing() -> None:
    batch = pack([Row("a", [1] * 9, 8, 1, [3, 5]), Row("b", [2] * 4, 3, 1, [0])], 8)
    padded = pad(batch, 4, 12)
    assert padded.slot_mapping.tolist() == [40, 3, -1, -1]
    assert padded.seq_lens.tolist() == [9, 4, 0, 0]
    assert padded.query_start_loc.tolist() == [0, 1, 2, 3, 4]
    assert padded.block_table.shape == (4, 12)
    assert (padded.block_table[:2, :2] == batch.block_table).all()
    assert (padded.block_table[2:] == -1).all()
    assert padded.block_table.dtype == padded.seq_lens.dtype == np.int32
    assert padded.sample_indices.tolist() == [0, 1]


def test_room_in_a_plan_is_empty() -> None:
    if not has_module("triton"):
        pytest.skip("triton is not installed")
    plan = plan_paged(
        [0, 1, 2], [900, 3], num_heads=2, num_kv_heads=1, head_dim=16, dtype=torch.float32, device="cpu"
    )
    roomy = with_room(plan, 64, 2, torch.device("cpu"))
    assert torch.equal(roomy.items[: len(plan.items)], plan.items)
    assert not roomy.items[len(plan.items) :].any()
    assert torch.equal(roomy.merges[:1], plan.merges)
    assert not roomy.merges[1:].any()
    assert roomy.num_part_rows == 64 >= plan.num_part_rows


def test_there_are_none_on_a_cpu() -> None:
    assert engine("auto")[1].graphs is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_cuda_graphs_sample_the_same_tokens() -> None:
    config = EngineConfig(num_blocks=64, block_size=8, max_num_seqs=4, max_model_len=96, device="cuda")
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    executor = LlamaExecutor(load("tiny-random", device="cuda"), config)
    executor.graphs = None
    expected = [output.token_ids for output in Engine(config, executor).generate(PROMPTS, params)]
    graphs = executor.graphs = DecodeGraphs(
        executor.model, executor.cache, "auto", 4, 96, record_cuda_graph()
    )
    assert [output.token_ids for output in Engine(config, executor).generate(PROMPTS, params)] == expected
    assert graphs.recorded
