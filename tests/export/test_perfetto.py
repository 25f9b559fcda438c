"""What is in a Perfetto file is what is in the trace: every step, token, block, reason and preemption."""

from __future__ import annotations

from bisect import bisect_right
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.export.reading import Picture, Slice, export, export_file, read
from tests.tracing.harness import configs, ops, run
from tests.tracing.test_roundtrip import BUSY, CONFIG
from tinycb.tracing import StepRecord, TraceReader
from tinycb.tui.history import DECODE, History
from tinycb.workloads.tour import write_tour

SHIPPED = Path(str(files("tinycb") / "data" / "vllm_preemption.jsonl"))
WORK = ("decode", "prefill chunk")


def check(records: list[StepRecord], picture: Picture) -> None:
    """Everything that runs, and when, and what is counted."""
    engine = picture.of("engine")
    assert [s.name.removesuffix(" failed") for s in engine] == [f"step {r.step}" for r in records]
    origin = min([records[0].time_start, *(new.arrival_time for new in records[0].new_requests)])
    ran: list[Slice] = [s for s in picture.slices if s.name in WORK]
    at = {(s.track.split(" (")[0], s.notes["step"]): s for s in ran}
    assert len(ran) == len(at) == sum(len(record.scheduled) for record in records)
    history = History()
    for index, (record, step) in enumerate(zip(records, engine, strict=True)):
        history.observe(record)
        assert step.begin == pytest.approx((record.time_start - origin) * 1e9, abs=1)
        assert step.end == pytest.approx((record.time_end - origin) * 1e9, abs=1)
        assert step.notes["num_scheduled_tokens"] == sum(record.scheduled.values())
        assert step.notes.get("decisions", []) == [d.sentence for d in record.decisions]
        assert step.notes.get("error") == record.error
        for name, count in record.scheduled.items():
            made = at[name, record.step]
            assert (made.begin, made.end) == (step.begin, step.end)
            life = history.life(name, index)
            assert life is not None
            assert (made.name == "decode") == (life.code_at(index) == DECODE)
            assert made.notes["num_computed_tokens"] == record.num_computed[name]
            assert made.notes.get("num_scheduled_tokens", 1) == count
            assert made.notes.get("sampled") == record.sampled.get(name)
            blocks = made.notes.get("blocks_allocated", "").split()
            assert [int(block) for block in blocks] == record.blocks_allocated.get(name, [])
    check_counters(records, engine, picture)


def check_counters(records: list[StepRecord], engine: list[Slice], picture: Picture) -> None:
    for name, values in picture.counters.items():
        for record, step in zip(records, engine, strict=True):
            in_use = int(name.rpartition(" ")[2]) - record.num_free_blocks if "blocks" in name else 0
            expected = {
                "blocks in use": in_use,
                "tokens": sum(record.scheduled.values()),
                "tokens of padding": record.num_padded,
                "requests that run": len(record.running),
                "requests that wait": record.num_waiting,
            }
            key = name.partition(" of ")[0] if "padding" not in name else name
            index = bisect_right(values, step.begin, key=lambda pair: pair[0]) - 1
            assert values[index][1] == expected[key.removesuffix(" in the step")], (name, record.step)


def check_reasons(records: list[StepRecord], picture: Picture) -> None:
    """Every decision about a request stands on the request's own track, in its step."""
    told = {(s.track.split(" (")[0], s.notes.get("step")): [] for s in picture.slices}
    for s in picture.slices:
        why = s.notes.get("why", [])
        told[s.track.split(" (")[0], s.notes.get("step")] += [why] if isinstance(why, str) else why
    for record in records:
        for decision in record.decisions:
            if decision.action not in ("hold", "refuse", "abort"):
                assert decision.sentence in told[decision.request_id, record.step]
            elif decision.action == "refuse":
                assert record.refused[decision.request_id] in told[decision.request_id, record.step]


def check_preemptions(records: list[StepRecord], picture: Picture) -> None:
    """A flow leads from each preemption to the next step that runs the request, if one does."""
    begins = {flow: s for s in picture.slices for flow in s.flows_out}
    ends = {flow: s for s in picture.slices for flow in s.flows_in}
    preempted = [(name, record.step) for record in records for name in record.preempted]
    assert [(s.track.split(" (")[0], s.notes["step"]) for s in begins.values()] == preempted
    for flow, begin in begins.items():
        assert begin.name == "preemption"
        assert begin.parent is not None
        assert begin.parent.name == "preempted"
        later = [s for s in picture.of(begin.track) if s.name in WORK and s.begin >= begin.begin]
        assert ends.get(flow) is (later[0] if later else None)
        if later:
            assert begin.parent.end == later[0].begin


@pytest.mark.parametrize("batching", ["static", "continuous", "chunked"])
def test_the_tour_is_all_there(tmp_path: Path, batching: str) -> None:
    records, picture = export_file(write_tour(tmp_path, batching))
    check(records, picture)
    check_reasons(records, picture)
    check_preemptions(records, picture)
    assert sorted(picture.tracks[-6:]) == list("ABCDEF")
    assert [s.name for s in picture.of("F")] == ["refused"]
    assert ("tokens of padding" in picture.counters) == (batching == "static")
    assert picture.title == f"scripted tour, {batching}, times made up"
    for name in "ABCDE":
        assert [len(picture.of(name, mark)) for mark in ("arrival", "first token", "finish")] == [1, 1, 1]
        arrival, token, finish = (picture.of(name, mark)[0] for mark in ("arrival", "first token", "finish"))
        assert finish.notes["ttft"] == pytest.approx((token.begin - arrival.begin) / 1e9)
        assert finish.notes["e2el"] == pytest.approx((finish.begin - arrival.begin) / 1e9)


def test_an_answer_that_is_held_back(tmp_path: Path) -> None:
    config = {"batching": "static", "block_size": 2, "num_blocks": 24, "max_num_seqs": 2}
    run(tmp_path / "t", config, [("add", 1, 4, 2), ("add", 3, 4, 7)])
    records, picture = export_file(tmp_path / "t")
    check(records, picture)
    (held,), (finish,), (returned,) = (picture.of("r1", name) for name in ("held", "finish", "returned"))
    assert (held.begin, held.end) == (finish.begin, returned.begin)
    assert returned.begin > finish.begin
    assert returned.notes["e2el"] * 1e9 == pytest.approx(returned.begin, rel=0.01)
    assert not picture.of("r3", "held")


def test_a_run_that_vllm_recorded(tmp_path: Path) -> None:
    records, picture = export_file(SHIPPED)
    check(records, picture)
    check_preemptions(records, picture)
    assert sum(len(s.flows_in) for s in picture.slices) == sum(len(r.preempted) for r in records) == 3
    assert picture.title == "vllm: smollm2-135m, chunked"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=configs, what=ops)
def test_any_run_is_all_there(tmp_path: Path, config, what) -> None:
    """Aborts, refusals, failed steps, ids that are used again: whatever an engine can be put through."""
    path = tmp_path / "t"
    run(path, config, what)
    with TraceReader(path) as reader:
        records = list(reader)
    if records:
        records, picture = export_file(path)
        check(records, picture)
        check_preemptions(records, picture)
        assert all(s.end is not None for s in picture.slices)
        for mark, count in (
            ("arrival", sum(len(r.new_requests) for r in records)),
            ("refused", sum(len(r.refused) for r in records)),
            ("aborted", sum(len(r.aborted) for r in records)),
            ("error", sum(len(r.errors) for r in records)),
            ("finish", sum(len(r.finished) for r in records)),
        ):
            assert len([s for s in picture.slices if s.name == mark]) == count, mark


def test_what_did_not_end_stays_open(tmp_path: Path) -> None:
    run(tmp_path / "t", CONFIG, [("add", 1, 5, 9), ("add", 3, 9, 9), ("step", 2)], finish=False)
    with TraceReader(tmp_path / "t") as reader:
        open_ones = [s for s in read(export(list(reader)[:1], reader.header)).slices if s.end is None]
    assert {s.name for s in open_ones} <= {"waiting"}


def test_it_is_written_step_by_step(tmp_path: Path) -> None:
    """Nothing is held back: after each step its bytes are there, and what is there can be read."""
    run(tmp_path / "t", CONFIG, BUSY)
    with TraceReader(tmp_path / "t") as reader:
        records = list(reader)
        sizes = [len(export(records[:count], reader.header)) for count in (5, 10, len(records))]
        whole = export(records, reader.header)
        assert sizes == sorted(sizes)
        for count, size in zip((5, 10, len(records)), sizes, strict=True):
            check(records[:count], read(whole[:size]))


def test_odd_clocks_and_texts(tmp_path: Path) -> None:
    """A clock that goes back, stands still or is no number; half characters; numbers beyond 64 bits."""
    run(tmp_path / "t", CONFIG, BUSY)
    with TraceReader(tmp_path / "t") as reader:
        records, header = list(reader), dict(reader.header)
    for record, time in zip(records, (5.0, 5.0, 4.0, float("nan"), float("inf"), -1e300), strict=False):
        record.time_start = time
    records[0].sampled_texts = dict.fromkeys(records[0].sampled, "\udc80")
    first = next(r for r in records if r.sampled)
    first.sampled[next(iter(first.sampled))] = 1 << 80
    header["model"] = "half a \udc80 character"
    picture = read(export(records, header))
    assert len(picture.of("engine")) == len(records)
    assert picture.title.startswith("half a ? character")


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("llama-3-8b on h100, modelled", "llama-3-8b on h100, chunked, times modelled"),
        ("scripted", "scripted, chunked, times made up"),
        ("smollm2-135m", "smollm2-135m, chunked"),
    ],
)
def test_the_title_says_where_the_seconds_come_from(tmp_path: Path, model: str, title: str) -> None:
    run(tmp_path / "t", CONFIG, BUSY)
    with TraceReader(tmp_path / "t") as reader:
        assert read(export(reader, {**reader.header, "model": model})).title == title
