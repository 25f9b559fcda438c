"""What the trace's tests share: runs of all kinds, and what the live engine looked like after each step."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ExecutorOutput
from tinycb.packing import PackedBatch
from tinycb.tokenizer import ByteTokenizer
from tinycb.tracing import StepRecord, TraceWriter
from tinycb.tracing.header import make_header

STOP = "R"  # the second token of r0


class Executor:
    """Any request's n-th token is a function of its name and n. Fails when it is told to."""

    name, vocab_size, max_model_len, num_blocks = "test", 256, None, None
    eos_token_ids = frozenset({3})

    def __init__(self) -> None:
        self.fail = False
        self.spoil = -1

    def check_request(self, request: Request) -> None:
        pass

    def execute(self, step) -> ExecutorOutput:
        if self.fail:
            self.fail = False
            raise RuntimeError("the device went away: try again")
        output = ExecutorOutput({})
        for index, request in enumerate(step.sampling):
            if index == self.spoil:
                output.errors[request.request_id] = "logits are NaN"
            else:
                count, seed = request.num_output_tokens, sum(map(ord, request.request_id))
                output.token_ids[request.request_id] = (seed * 31 + 7 * count) % 97
        self.spoil = -1
        return output


@dataclass
class Seen:
    """The live engine when a step's record was written."""

    record: StepRecord
    packed: PackedBatch | None
    tables: dict[str, list[int]]
    rows: list[tuple[Any, ...]]
    ref_counts: list[int]
    cached: set[int]
    free: set[int]
    running: list[str]
    waiting: list[str]
    requests: dict[str, tuple[str, list[int], int, list[int]]]


def row_values(rows) -> list[tuple[Any, ...]]:
    """An idle slot's tokens are nobody's business."""
    return [
        (r.request_id, list(r.token_ids), r.start, r.num_tokens, list(r.block_table), r.samples)
        if r.num_tokens
        else (r.request_id,)
        for r in rows
    ]


@dataclass
class Witness:
    """Stands between an engine and its trace, and notes what the engine looked like."""

    engine: Engine
    inner: Any
    seen: list[Seen] = field(default_factory=list)

    def write(self, record: StepRecord) -> None:
        engine = self.engine
        live = {live.request.request_id: live.request for live in engine._live.values()}
        rows = record.rows
        self.seen.append(
            Seen(
                record=record,
                packed=record.packed if rows else None,
                tables={name: list(table) for name, table in record.block_tables.items()},
                rows=row_values(rows),
                ref_counts=[block.ref_count for block in engine.pool.blocks],
                cached={block.block_id for block in engine.pool.blocks if block.prefix is not None},
                free=set(engine.pool.free_list),
                running=[r.request_id for r in engine.scheduler.running if live.get(r.request_id) is r],
                waiting=[r.request_id for r in engine.scheduler.waiting],
                requests={
                    name: (r.status.value, list(r.token_ids), r.num_computed_tokens, list(r.block_table))
                    for name, r in live.items()
                },
            )
        )
        self.inner.write(record)

    def close(self) -> None:
        self.inner.close()


configs = st.fixed_dictionaries(
    {
        "batching": st.sampled_from(["static", "continuous", "chunked"]),
        "block_size": st.sampled_from([1, 2, 4]),
        "num_blocks": st.integers(6, 24),
        "max_num_batched_tokens": st.integers(1, 20),
        "max_num_seqs": st.integers(1, 5),
        "prefix_caching": st.booleans(),
        "reserve_full_prompt": st.booleans(),
    }
)

# What happens between steps. Prompts share prefixes, ids are used again, and some of it cannot be done.
ops = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(1, 14), st.integers(1, 9)),
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(1, 14), st.integers(1, 9)),
        st.tuples(st.just("step"), st.integers(1, 4)),
        st.tuples(st.just("abort"), st.integers(0, 5)),
        st.tuples(st.just("fail")),
        st.tuples(st.just("spoil"), st.integers(0, 2)),
        st.tuples(st.just("refuse"), st.integers(0, 5)),
        st.tuples(st.just("stop"), st.integers(0, 5), st.integers(1, 9)),
    ),
    max_size=24,
)


def prompt(index: int, length: int) -> list[int]:
    """Two families of prompts, so that prefixes are shared within each."""
    return [(index % 2) * 50 + 5 + i for i in range(length)]


def try_to(act: Callable[[], Any]) -> None:
    with contextlib.suppress(ValueError, RuntimeError):
        act()


def run(
    path: Path,
    config: dict[str, Any],
    what: list[tuple[Any, ...]],
    *,
    keyframe_every: int = 5,
    finish: bool = True,
) -> list[Seen]:
    """Do `what` on an engine that writes `path`, then step to the end unless `finish` is false."""
    executor = Executor()
    engine = Engine(EngineConfig(check=True, **config), executor, ByteTokenizer())
    header = make_header(engine.config, model="test", eos_token_ids=executor.eos_token_ids)
    writer = TraceWriter(path, header, keyframe_every=keyframe_every)
    witness = engine._trace = Witness(engine, writer)
    for op, *args in what:
        name = f"r{args[0]}" if args else ""
        if op == "add":
            params = SamplingParams(max_tokens=args[2], seed=args[0])
            try_to(lambda n=name, a=args, p=params: engine.add_request(Request(n, prompt(a[0], a[1]), p)))
        elif op == "stop":
            params = SamplingParams(max_tokens=args[1], stop=[STOP, "no such"], ignore_eos=True)
            try_to(lambda n=name, p=params: engine.add_request(Request(n, [5, 6], p), prompt="\x05\x06"))
        elif op == "refuse":
            try_to(lambda n=name: engine.add_request(Request(n, [])))
        elif op == "abort":
            engine.abort(name)
        elif op == "fail":
            executor.fail = True
        elif op == "spoil":
            executor.spoil = args[0]
        else:
            for _ in range(args[0]):
                try_to(engine.step)
    for _ in range(500 if finish else 0):
        if not engine.has_unfinished_requests():
            break
        try_to(engine.step)
    engine.close()
    return witness.seen


_FIELDS = [f.name for f in fields(StepRecord) if f.name not in ("block_size", "rows_source")]


def assert_same_record(read: StepRecord, live: StepRecord) -> None:
    for name in _FIELDS:
        assert getattr(read, name) == getattr(live, name), f"step {live.step}: {name}"
        if isinstance(getattr(live, name), dict):
            assert list(getattr(read, name)) == list(getattr(live, name)), (
                f"step {live.step}: order of {name}"
            )


def assert_same_packed(read: PackedBatch, live: PackedBatch) -> None:
    for f in fields(PackedBatch):
        mine, other = getattr(read, f.name), getattr(live, f.name)
        if isinstance(other, np.ndarray):
            assert mine.dtype == other.dtype, f.name
            assert np.array_equal(mine, other), f.name
        else:
            assert mine == other, f.name
