"""CUDA graphs for steps in which every request decodes one token: the launches of a step, recorded once.

A decode step of a large model is hundreds of small launches, and a GPU waits between them for Python. A graph
repeats them all with one call, but with the same tensors of the same sizes as when it was recorded. So a
batch is padded to a size that has a graph, and copied into that graph's own inputs:

    3 requests, sizes 1 2 4 8 …     token_ids   a b c ·          · is nobody: token 0, slot -1, no keys
                                    seq_lens    7 9 4 0            its row is computed and dropped

What a step costs grows with the number of work items of the attention kernel, too: long contexts are cut into
several (`tinycb_kernels.triton_plan`). So a graph has a size for those as well, its requests times a power of
two.

A graph is recorded when its sizes first occur. Off on a CPU. Who records is an argument, so that tests can
pad, choose and compare without a GPU. Does not run a prompt: that is `llama.py`'s forward, as always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tinycb.model.attention import AttentionMetadata
from tinycb.model.kv_cache import KVCache
from tinycb.model.llama import Llama
from tinycb.packing import PackedBatch
from tinycb_kernels import PagedPlan, plan_paged

__all__ = ["DecodeGraphs", "Recorder", "padded_size", "record_cuda_graph"]

Recorder = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""A function that runs the work → one that repeats it on the same tensors and returns the same output."""


def padded_size(num_requests: int) -> int:
    """The next of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, …: at most half as many again beyond 16."""
    power = 1 << (num_requests - 1).bit_length()
    between = power * 3 // 4
    return between if between >= max(num_requests, 24) else power


@dataclass(slots=True)
class Recorded:
    """A graph, and the tensors it reads."""

    tokens: Tensor  # (B,) int64
    positions: Tensor  # (B,) int64
    meta: AttentionMetadata
    replay: Callable[[], Tensor]  # → logits (B, V)


class DecodeGraphs:
    """Runs decode steps of one model over one cache.

    max_num_seqs: the largest batch. max_model_len: the longest context. record: turns a function into its
    repetition.
    """

    def __init__(
        self,
        model: Llama,
        cache: KVCache,
        backend: str,
        max_num_seqs: int,
        max_model_len: int,
        record: Recorder,
    ) -> None:
        self.model, self.cache, self.backend, self.record = model, cache, backend, record
        self.max_num_seqs, self.max_model_len = max_num_seqs, max_model_len
        self.max_blocks = -(-max_model_len // cache.block_size)
        self.recorded: dict[tuple[int, int], Recorded] = {}  # by the numbers of requests and of work items

    def fits(self, batch: PackedBatch) -> bool:
        """Whether every request of the batch runs one token, and there are not too many."""
        num_requests = len(batch.seq_lens)
        one_each = len(batch.token_ids) == num_requests and batch.num_padded == 0
        return one_each and 0 < num_requests <= self.max_num_seqs and bool((batch.seq_lens > 0).all())

    def forward(self, batch: PackedBatch) -> Tensor:
        """fp32 logits of the rows that sample, as `Llama.forward`: (len(sample_indices), V)."""
        size = padded_size(len(batch.seq_lens))
        padded = pad(batch, size, self.max_blocks)
        plan = self._plan(padded)
        num_items = size
        while num_items < len(plan.items):
            num_items *= 2
        recorded = self.recorded.get((size, num_items))
        if recorded is None:
            recorded = self.recorded[size, num_items] = self._record(padded, plan, num_items)
        else:
            self._fill(recorded, padded, plan)
        logits = recorded.replay()  # (B, V)
        return logits[torch.from_numpy(batch.sample_indices).to(logits.device)]

    def _plan(self, padded: PackedBatch) -> PagedPlan:
        c, k = self.model.config, self.cache.k
        return plan_paged(
            padded.query_start_loc, padded.seq_lens, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads,
            head_dim=c.head_dim, dtype=k.dtype, device="cpu",
        )  # fmt: skip

    def _record(self, padded: PackedBatch, plan: PagedPlan, num_items: int) -> Recorded:
        size = len(padded.seq_lens)
        meta = AttentionMetadata.build(padded, "paged", self.backend, self.cache)
        meta.plan = with_room(plan, num_items, size if num_items > size else 0, self.model.device)
        tokens = torch.from_numpy(padded.token_ids).to(self.model.device)  # (B,)
        positions = torch.from_numpy(padded.positions).to(self.model.device)  # (B,)
        every_row = torch.arange(size, device=self.model.device)  # (B,)

        def run() -> Tensor:
            # The table of angles is as long as it ever gets: the graph goes on reading this one.
            return self.model.run(tokens, positions, self.max_model_len, every_row, self.cache, meta)

        return Recorded(tokens, positions, meta, self.record(run))

    def _fill(self, recorded: Recorded, padded: PackedBatch, plan: PagedPlan) -> None:
        """The graph's inputs become this step's. `query_start_loc` is 0, 1, 2, … in every step."""
        meta = recorded.meta
        assert meta.plan is not None
        for there, here in (
            (recorded.tokens, padded.token_ids),
            (recorded.positions, padded.positions),
            (meta.slot_mapping, padded.slot_mapping),
            (meta.seq_lens, padded.seq_lens),
            (meta.block_table, padded.block_table),
        ):
            there.copy_(torch.from_numpy(here), non_blocking=True)
        for room, rows in ((meta.plan.items, plan.items), (meta.plan.merges, plan.merges)):
            room[: len(rows)].copy_(rows)
            room[len(rows) :].zero_()  # no queries, no parts: nothing is done


def pad(batch: PackedBatch, size: int, max_blocks: int) -> PackedBatch:
    """The batch with rows of nobody up to `size`, and a block table of the width that every step has."""
    missing = size - len(batch.seq_lens)
    num_requests, width = batch.block_table.shape
    block_table = np.full((size, max_blocks), -1, dtype=np.int32)  # (B, MB)
    block_table[:num_requests, :width] = batch.block_table
    return replace(
        batch,
        request_ids=[*batch.request_ids, *[""] * missing],
        token_ids=np.pad(batch.token_ids, (0, missing)),
        positions=np.pad(batch.positions, (0, missing)),
        query_start_loc=np.arange(size + 1, dtype=np.int32),
        seq_lens=np.pad(batch.seq_lens, (0, missing)),
        slot_mapping=np.pad(batch.slot_mapping, (0, missing), constant_values=-1),
        block_table=block_table,
    )


def with_room(plan: PagedPlan, num_items: int, num_merges: int, device: torch.device) -> PagedPlan:
    """A plan in tensors of these sizes, whatever is left of them empty; every item may be a part."""
    items = torch.zeros(num_items, 8, dtype=torch.int32, device=device)
    merges = torch.zeros(num_merges, 4, dtype=torch.int32, device=device)
    items[: len(plan.items)] = plan.items
    merges[: len(plan.merges)] = plan.merges
    return replace(plan, items=items, merges=merges, num_part_rows=num_items if num_merges else 0)


def record_cuda_graph() -> Recorder:
    """A recorder that captures CUDA graphs. They share their scratch memory: only one replays at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        run()  # compiles kernels and chooses products, neither of which a capture may do
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = run()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay

    return record
