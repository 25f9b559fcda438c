"""Lives of requests, against the records and against the engine's own metrics."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.tracing import harness
from tinycb.tracing import MetricsCollector, TraceReader, config_from_header
from tinycb.tui.history import EVENTS, History, Life


def history_of(reader: TraceReader) -> History:
    history = History()
    for record in reader:
        history.observe(record)
    return history


def lives(history: History) -> list[Life]:
    return [life for life in history.lives if isinstance(life, Life)]


@pytest.mark.parametrize("policy", ["chunked", "continuous", "static"])
def test_progress_at_the_end_is_what_the_metrics_say(tours: dict[str, Path], policy: str) -> None:
    with TraceReader(tours[policy]) as reader:
        history = history_of(reader)
        collector = MetricsCollector(config_from_header(reader.header))
        count = 0
        for index, record in enumerate(reader):
            collector.observe(record)
            for name in record.returned:
                metrics, life = collector.finished(name), history.life(name, index)
                assert life is not None
                progress = history.progress(life, index)
                assert progress.ttft == pytest.approx(metrics.ttft)
                assert progress.tpot == pytest.approx(metrics.tpot)
                assert progress.ttft_steps == metrics.ttft_steps
                assert progress.tpot_steps == pytest.approx(metrics.tpot_steps)
                assert progress == history.progress(life, len(reader) - 1)
                count += 1
        assert count == 5


def check_against_records(reader: TraceReader) -> None:
    history = history_of(reader)
    outputs: dict[str, int] = {}
    for index, record in enumerate(reader):
        for new in record.new_requests:
            outputs[new.request_id] = 0
        for name in record.sampled:
            outputs[name] += 1
            life = history.life(name, index)
            assert life is not None
            assert life.sampled(index) == (outputs[name], index)
            assert history.progress(life, index).num_output == outputs[name]
        for life in lives(history):
            code = life.code_at(index)
            if history.life(life.request_id, index) is not life:
                continue
            if life.request_id in record.scheduled and record.error is None:
                assert code in "pPd"
            elif life.request_id in record.preempted and code:
                assert code == "x"
            elif code:
                assert code in "wsh"
                assert code != "h" or life.end
        assert history.times[index] == record.time_end
        assert history.counts["free"][index] == record.num_free_blocks
    for life in lives(history):
        last = len(reader) - 1
        drawn = [(i, code) for a, b, code in life.runs(0, last) for i in range(a, b + 1)]
        assert drawn == [(i, life.code_at(i)) for i in range(last + 1) if life.code_at(i)]


@pytest.mark.parametrize("policy", ["chunked", "continuous", "static"])
def test_every_step_of_the_tour(tours: dict[str, Path], policy: str) -> None:
    with TraceReader(tours[policy]) as reader:
        check_against_records(reader)


@settings(max_examples=30)
@given(config=harness.configs, what=harness.ops)
def test_any_run(tmp_path_factory: pytest.TempPathFactory, config, what) -> None:
    path = tmp_path_factory.mktemp("run") / "t"
    harness.run(path, config, what)
    with TraceReader(path) as reader:
        check_against_records(reader)


def test_events(tour: Path) -> None:
    with TraceReader(tour) as reader:
        history = history_of(reader)
        fields = dict(zip(EVENTS, ("preempted", "finished", "admitted", "refused"), strict=False))
        for kind, field in fields.items():
            steps = [i for i, record in enumerate(reader) if getattr(record, field)]
            assert steps, f"the tour has no {kind}"
            assert list(history.events[kind]) == steps
            assert history.next_event(kind, -1, 1) == steps[0]
            assert history.next_event(kind, steps[-1], 1) is None
            assert history.next_event(kind, len(reader), -1) == steps[-1]
            assert history.next_event(kind, steps[0], -1) is None
        assert list(history.events["first token"]) == sorted({life.first_token for life in lives(history)})
        assert history.events["prefix hit"]


def test_letters_are_the_ids_where_they_can_be() -> None:
    history = History()
    assert [history.sign(name) for name in ("r7", "B", "A", "r8", "zz")] == [0, 1, 2, 3, 4]
    history = History()
    assert [history.sign(name) for name in ("C", "x", "long", "A")] == [2, 49, 0, 1]
