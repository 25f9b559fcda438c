"""What happened in one step. Everything that shows or measures anything reads this, and nothing else.

A `StepRecord` holds the step's choice, its tokens, its blocks and its reasons. What is large (block tables,
packed arrays) is not copied into it: on a live engine those are views of the requests, valid until the next
step; read from a trace, they are rebuilt by `reader.py`.

Next: `writer.py` and `reader.py` for the file, `metrics.py` for the latencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinycb.packing import PackedBatch, Row, pack
from tinycb.scheduling.decisions import Decision

__all__ = ["NewRequest", "StepRecord"]


@dataclass(slots=True)
class NewRequest:
    """What arrived: enough to run it again. `seed` is the one in force, drawn where none was given.

    arrival_time: seconds on the engine's clock. prompt: its text, if it came as text.
    texts: the text of each prompt token, where there is a tokenizer.
    extra: fields of a trace that this version does not know.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling_params: dict[str, Any]
    arrival_time: float
    seed: int | None = None
    prompt: str | None = None
    texts: list[str] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StepRecord:
    """One iteration: what was scheduled, what came of it, what it took and gave back, and why.

    scheduled: tokens each request runs this step, in batch order. num_computed: tokens each had before it.
    sampled: the token each got. sampled_texts: its text, where there is a tokenizer.
    arrived, admitted, preempted, aborted: request ids; arrived, aborted and refused since the last record.
    refused: id → why. finished: id → FinishReason. returned: answers given back; with static batching at the
    end of the batch. running: who holds a place in the batch, those that finish this step included.
    num_waiting, num_free_blocks: after scheduling. blocks_allocated: id → blocks it got this step.
    blocks_freed: id → blocks that became free since the last record: by preemption, finish or abort.
    blocks_cached, blocks_evicted: blocks that began and ceased to offer a prefix for sharing.
    prefix_hits: id → tokens found in the prefix cache. num_padded: tokens of padding that really ran.
    num_recomputed: tokens run that had been run before a preemption; `MetricsCollector.observe` fills it in.
    errors: id → what went wrong with that request alone. error: the forward failed; the step was undone.
    time_start, time_end: seconds on the engine's clock.
    new_requests: those of `arrived`, in full. extra: fields of a trace that this version does not know.
    """

    step: int
    scheduled: dict[str, int] = field(default_factory=dict)
    num_computed: dict[str, int] = field(default_factory=dict)
    sampled: dict[str, int] = field(default_factory=dict)
    sampled_texts: dict[str, str] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    num_waiting: int = 0
    num_free_blocks: int = 0
    blocks_allocated: dict[str, list[int]] = field(default_factory=dict)
    blocks_freed: dict[str, list[int]] = field(default_factory=dict)
    blocks_cached: list[int] = field(default_factory=list)
    blocks_evicted: list[int] = field(default_factory=list)
    prefix_hits: dict[str, int] = field(default_factory=dict)
    num_padded: int = 0
    num_recomputed: int = 0
    decisions: list[Decision] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    time_start: float = 0.0
    time_end: float = 0.0
    new_requests: list[NewRequest] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    block_size: int = field(default=0, repr=False)
    pad: bool = field(default=False, repr=False)
    rows_source: Callable[[], Sequence[Row]] | None = field(default=None, repr=False, compare=False)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows of the batch, in order, idle slots included."""
        return self.rows_source() if self.rows_source is not None else ()

    @property
    def block_tables(self) -> Mapping[str, Sequence[int]]:
        """The block table of each scheduled request, after allocation."""
        return {row.request_id: list(row.block_table) for row in self.rows if row.num_tokens}

    @property
    def packed(self) -> PackedBatch:
        """The arrays that the kernels got: `query_start_loc`, `seq_lens`, `slot_mapping` and the rest."""
        return pack(self.rows, self.block_size, pad=self.pad)
