"""What a trace gives back is what the live engine had: step by step, in any order, cut anywhere."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tracing.harness import (
    Seen,
    assert_same_packed,
    assert_same_record,
    configs,
    ops,
    row_values,
    run,
)
from tinycb.tokenizer import ByteTokenizer
from tinycb.tracing import TraceReader, TraceWriter

FILE = [HealthCheck.function_scoped_fixture]
CONFIG = {"batching": "chunked", "block_size": 2, "num_blocks": 14, "max_num_batched_tokens": 8}
BUSY = [
    *[("add", i, 3 + 2 * i, 9) for i in range(5)],
    *[("step", 4), ("fail",), ("abort", 1), ("add", 1, 6, 5), ("refuse", 2), ("spoil", 0), ("step", 9)],
    *[("add", 5, 9, 9), ("stop", 0, 9), ("step", 3)],
]


def check_step(reader: TraceReader, index: int, seen: Seen) -> None:
    record = reader[index]
    assert_same_record(record, seen.record)
    assert row_values(record.rows) == seen.rows
    assert dict(record.block_tables) == seen.tables
    if seen.packed is not None:
        assert_same_packed(record.packed, seen.packed)


def check_state(reader: TraceReader, index: int, seen: Seen) -> None:
    state = reader.state(index)
    assert [block.ref_count for block in state.blocks] == seen.ref_counts
    assert state.cached == seen.cached
    assert state.free == seen.free
    assert list(state.running) == seen.running
    assert [request.request_id for request in state.waiting] == seen.waiting
    waiting = {request.request_id: request for request in state.waiting}
    assert set(state.requests) | set(waiting) == set(seen.requests)
    for name, request in {**waiting, **state.requests}.items():
        status, tokens, computed, table = seen.requests[name]
        assert request.status == status
        assert list(request.token_ids) == tokens
        assert request.num_computed_tokens == computed
        assert list(request.block_table) == table
        assert list(request.texts) == [ByteTokenizer().token_text(token) for token in tokens]


@settings(max_examples=100, deadline=None, suppress_health_check=FILE)
@given(config=configs, what=ops, every=st.integers(1, 9), seed=st.integers(0, 99))
def test_every_step_is_as_it_was_live(tmp_path: Path, config, what, every, seed) -> None:
    path = tmp_path / "run.jsonl"
    seen = run(path, config, what, keyframe_every=every)
    with TraceReader(path) as reader:
        assert len(reader) == len(seen)
        assert not reader.truncated
        for index, record in enumerate(reader):  # in order
            assert_same_record(record, seen[index].record)
            assert row_values(record.rows) == seen[index].rows
        order = list(range(len(seen)))
        random.Random(seed).shuffle(order)
        for index in order:
            check_step(reader, index, seen[index])
            check_state(reader, index, seen[index])
        records = list(reader)  # rows of a record that was read long ago
        for index in order:
            assert row_values(records[index].rows) == seen[index].rows


def test_the_busy_run_shows_everything(tmp_path: Path) -> None:
    """So that the tests that use it test something."""
    seen = run(tmp_path / "t", CONFIG, BUSY)
    told = {f for s in seen for f in ("preempted", "aborted", "refused", "prefix_hits", "errors", "error")
            if getattr(s.record, f)}  # fmt: skip
    assert told == {"preempted", "aborted", "refused", "prefix_hits", "errors", "error"}
    assert "stop_string" in {d.reason for s in seen for d in s.record.decisions}
    assert len(seen) > 20


@settings(max_examples=25, deadline=None, suppress_health_check=FILE)
@given(config=configs, what=ops)
def test_reading_and_rewriting_gives_the_same_bytes(tmp_path: Path, config, what) -> None:
    path, copy = tmp_path / "a", tmp_path / "b"
    run(path, config, what, keyframe_every=4)
    with TraceReader(path) as reader, TraceWriter(copy, reader.header, keyframe_every=4) as writer:
        for record in reader:
            writer.write(record)
    assert copy.read_bytes() == path.read_bytes()


def test_unknown_fields_survive(tmp_path: Path) -> None:
    path, copy = tmp_path / "a", tmp_path / "b"
    run(path, CONFIG, BUSY, keyframe_every=1000)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["weather"] = {"sun": 1}
    for line in lines[1:]:
        line["temperature"] = [line["step"], None]
        for new in line.get("new_requests", ()):
            new["user"] = "ada"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))  # other blanks, other offsets

    with TraceReader(path) as reader, TraceWriter(copy, reader.header, keyframe_every=7) as writer:
        assert reader[3].extra == {"temperature": [3, None]}
        for record in reader:
            writer.write(record)
    copied = [json.loads(line) for line in copy.read_text().splitlines()]
    assert copied[0]["weather"] == {"sun": 1}
    steps = [line for line in copied if "step" in line]
    assert all(line["temperature"] == [line["step"], None] for line in steps)
    assert all(new["user"] == "ada" for line in steps for new in line.get("new_requests", ()))


def test_a_file_edited_by_hand_is_still_read(tmp_path: Path) -> None:
    """Offsets in it are only hints; longer lines and lost keyframes cost time and nothing else."""
    path = tmp_path / "t"
    seen = run(path, CONFIG, BUSY, keyframe_every=4)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [line for line in lines if line.get("keyframe") not in (8, 12)]
    path.write_text(
        "".join(json.dumps({**line, "note": "x" * (i % 50)}) + "\n" for i, line in enumerate(kept))
    )
    with TraceReader(path) as reader:
        for index in random.Random(1).sample(range(len(seen)), len(seen)):
            assert reader[index].scheduled == seen[index].record.scheduled
            assert {n: list(t) for n, t in reader[index].block_tables.items()} == seen[index].tables
            if index not in range(8, 20):  # the tokens of some others were in the lost keyframes
                check_state(reader, index, seen[index])


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    path, growing = tmp_path / "a", tmp_path / "b"
    seen = run(path, CONFIG, BUSY, keyframe_every=4)
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    growing.write_bytes(data[:first])
    with TraceReader(growing) as reader:
        assert len(reader) == 0
        assert list(reader.steps) == []
        total = 0
        for end in range(first, len(data) + 1, 97):
            with growing.open("ab") as file:
                file.write(data[growing.stat().st_size : end])
            total += reader.refresh()
            assert total == len(reader)
            if total:
                check_step(reader, -1, seen[total - 1])
                check_state(reader, total // 2, seen[total // 2])
        with growing.open("ab") as file:
            file.write(data[growing.stat().st_size :])
        reader.refresh()
        assert len(reader) == len(seen)
        assert list(reader.steps) == [s.record.step for s in seen]


def test_the_sequence_behaves_as_one(tmp_path: Path) -> None:
    path = tmp_path / "t"
    seen = run(path, CONFIG, BUSY)
    with TraceReader(path) as reader:
        assert [record.step for record in reader[-3:]] == [s.record.step for s in seen[-3:]]
        assert reader[-1].step == seen[-1].record.step
        for index in (len(seen), -len(seen) - 1):
            with pytest.raises(IndexError, match=f"step {index} of a trace of {len(seen)} steps"):
                reader[index]
        with pytest.raises(IndexError):
            reader.state(len(seen))
