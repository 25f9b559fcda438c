"""Latencies and waste: by hand, and against a slow and naive bookkeeping of the same records."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.tracing.harness import configs, ops, run
from tests.tracing.test_roundtrip import BUSY, CONFIG
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.tracing import (
    MetricsCollector,
    StepRecord,
    TraceReader,
    Waste,
    config_from_header,
    step_waste,
)
from tinycb.tracing.summary import Samples

FILE = [HealthCheck.function_scoped_fixture]


class Clock:
    """Seconds that pass as they are told to; a step takes half of one."""

    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


class SlowExecutor(ScriptedExecutor):
    def execute(self, step):
        clock.now += 0.5
        return super().execute(step)


clock = Clock()


def test_an_example_by_hand() -> None:
    """A batch of two under a budget of 4, blocks of 4:

        step        0      1      2      3      4
        a (5 prompt)  4      1      1      1            tokens after steps 1, 2, 3
        b (3 prompt)         3      1      1*             arrives at 10.7, before step 1; 1 of 2 at step 1

    *b's max_tokens is 2, so it is done after step 2.
    """
    clock.now = 10.0
    config = EngineConfig(block_size=4, num_blocks=8, max_num_batched_tokens=4, prefix_caching=False)
    engine = Engine(config, SlowExecutor({"a": [7, 8, 9], "b": [5, 6], "c": [1]}), clock=clock)
    greedy = {"ignore_eos": True}
    params = SamplingParams(max_tokens=3, **greedy)
    engine.add_request(Request("a", [1, 2, 3, 4, 5], params, arrival_time=9.0))
    waste = [step_waste(engine.step(), engine.config)]  # ends at 10.5
    clock.now = 10.7
    engine.add_request(Request("b", [1, 2, 3], SamplingParams(max_tokens=2, **greedy)))
    while engine.has_unfinished_requests():  # end at 11.2, 11.7, 12.2
        waste.append(step_waste(engine.step(), engine.config))

    a, b = engine.outputs["a"].metrics, engine.outputs["b"].metrics
    assert a.ttft == pytest.approx(11.2 - 9.0)
    assert a.itl == pytest.approx((0.5, 0.5))
    assert a.e2el == pytest.approx(12.2 - 9.0)
    assert a.tpot == pytest.approx((a.e2el - a.ttft) / 2)
    assert (a.ttft_steps, a.itl_steps, a.e2el_steps, a.tpot_steps) == (2, (1, 1), 4, 1.0)
    assert b.ttft == pytest.approx(11.2 - 10.7)
    assert b.e2el == pytest.approx(11.7 - 10.7)
    assert (b.ttft_steps, b.itl_steps, b.e2el_steps, b.tpot_steps) == (1, (1,), 2, 1.0)

    # computed after each step: a 4 | a 5, b 3 | a 6, b 4 | a 7
    assert [w.slack_in_last_blocks for w in waste] == [0, 3 + 1, 2 + 0, 1]
    assert [w.unused_budget for w in waste] == [0, 0, 2, 3]
    assert all((w.padded_tokens, w.idle_slots, w.recomputed_tokens) == (0, 0, 0) for w in waste)

    totals = engine.metrics.totals
    assert (totals.steps, totals.forwards, totals.scheduled_tokens, totals.forward_tokens) == (4, 4, 11, 11)
    assert (totals.num_prompt_tokens, totals.num_output_tokens, totals.returned) == (8, 5, 2)
    assert totals.duration == pytest.approx(2.2)
    assert totals.tokens_per_second == pytest.approx(5 / 2.2)
    assert totals.ttft.mean == pytest.approx((2.2 + 0.5) / 2)
    assert totals.itl.count == 3
    assert totals.waste == waste[0] + waste[1] + waste[2] + waste[3]


def test_a_static_batch_waits_pads_and_idles() -> None:
    clock.now = 0.0
    config = EngineConfig(batching="static", block_size=4, num_blocks=16, prefix_caching=False)
    engine = Engine(config, SlowExecutor({"a": [7, 8, 9], "b": [5]}), clock=clock)
    engine.add_request(Request("a", [1, 2], SamplingParams(max_tokens=3, ignore_eos=True)))
    engine.add_request(Request("b", [1, 2, 3, 4, 5], SamplingParams(max_tokens=1, ignore_eos=True)))
    waste = []
    while engine.has_unfinished_requests():
        waste.append(step_waste(engine.step(), engine.config))
    assert [w.padded_tokens for w in waste] == [3, 1, 1]
    assert [w.idle_slots for w in waste] == [0, 1, 1]
    assert [w.unused_budget for w in waste] == [0, 0, 0]  # there is none
    b = engine.outputs["b"].metrics
    assert (b.ttft, b.e2el, b.tpot, b.tpot_steps) == (0.5, 1.5, None, None)  # done in step 0
    assert engine.metrics.totals.tpot.count == 1


class Naive:
    """Everything kept for ever, and worked out again from the beginning whenever it is asked for."""

    def __init__(self, records: list[StepRecord]) -> None:
        self.records = records

    def life(self, name: str, returned_at: int) -> list[StepRecord]:
        """From its arrival, the latest one before it was returned, to its return."""
        first = max(i for i in range(returned_at + 1) if name in self.records[i].arrived)
        return self.records[first : returned_at + 1]

    def metrics(self, name: str, returned_at: int) -> dict:
        life = self.life(name, returned_at)
        arrival = [new for new in life[0].new_requests if new.request_id == name][-1].arrival_time
        tokens = [record for record in life if name in record.sampled]
        times, steps = [r.time_end for r in tokens], [r.step for r in tokens]
        e2el, e2el_steps = life[-1].time_end - arrival, life[-1].step - life[0].step + 1
        many, gaps = len(tokens) > 1, len(tokens) - 1
        furthest = recomputed = 0
        done: set[int] = set()
        for record in life:
            if name in record.preempted:
                furthest = max(furthest, max(done, default=0))
            if name in record.scheduled:
                start = record.num_computed[name]
                positions = range(start + 1, start + record.scheduled[name] + 1)
                recomputed += sum(position <= furthest for position in positions)
                done.update(positions)
        return {
            "ttft": times[0] - arrival if tokens else None,
            "tpot": (e2el - (times[0] - arrival)) / gaps if many else None,
            "e2el": e2el,
            "itl": tuple(np.diff(times)),
            "ttft_steps": steps[0] - life[0].step + 1 if tokens else None,
            "tpot_steps": (life[-1].step - steps[0]) / gaps if many else None,
            "e2el_steps": e2el_steps,
            "itl_steps": tuple(np.diff(steps)),
            "num_preemptions": sum(record.preempted.count(name) for record in life),
            "num_cached_tokens": next(
                (r.prefix_hits.get(name, 0) for r in reversed(life) if name in r.admitted), 0
            ),
            "num_recomputed_tokens": recomputed,
        }


@settings(max_examples=80, deadline=None, suppress_health_check=FILE)
@given(config=configs, what=ops)
def test_every_run_against_a_naive_bookkeeping(tmp_path: Path, config, what) -> None:
    path = tmp_path / "t"
    run(path, config, what)
    with TraceReader(path) as reader:
        records, engine_config = list(reader), config_from_header(reader.header)
    collector, naive = MetricsCollector(engine_config), Naive(records)
    tpots, ttfts, itls, recomputed = [], [], [], 0
    for index, record in enumerate(records):
        recorded = record.num_recomputed
        collector.observe(record)
        assert record.num_recomputed == recorded  # the engine's own collector, live, found the same
        recomputed += recorded
        for name in record.returned:
            metrics = collector.finished(name)
            expected = naive.metrics(name, index)
            for field, value in expected.items():
                assert getattr(metrics, field) == pytest.approx(value), field
            if not any(name in r.errors for r in naive.life(name, index)):
                ttfts.append(metrics.ttft)
                itls += metrics.itl
                if metrics.tpot is not None:
                    tpots.append(metrics.tpot)
    totals = collector.totals
    assert totals.steps == len(records)
    assert totals.scheduled_tokens == sum(sum(r.scheduled.values()) for r in records)
    assert totals.waste.padded_tokens == sum(r.num_padded for r in records)
    assert totals.waste.recomputed_tokens == recomputed
    assert totals.num_output_tokens == sum(len(r.sampled) for r in records)
    assert totals.num_preemptions == sum(len(r.preempted) for r in records)
    for values, summary in ((ttfts, totals.ttft), (tpots, totals.tpot), (itls, totals.itl)):
        assert summary.count == len(values)
        if values:
            assert summary.mean == pytest.approx(np.mean(values))
            figures = [summary.p50, summary.p90, summary.p99]
            assert figures == pytest.approx(list(np.percentile(values, [50, 90, 99])))
    assert not collector._requests, "a request that is over is still kept"
    assert not collector._moments
    assert not collector._partial
    assert not collector._again
    assert not collector._done
    assert not collector._failed


def test_the_busy_run_computes_again(tmp_path: Path) -> None:
    """So that the test above tests something."""
    assert any(seen.record.num_recomputed for seen in run(tmp_path / "t", CONFIG, BUSY))


def test_slack_is_what_the_arrays_show(tmp_path: Path) -> None:
    path = tmp_path / "t"
    run(path, CONFIG | {"batching": "continuous"}, BUSY)
    with TraceReader(path) as reader:
        config = config_from_header(reader.header)
        for record in reader:
            waste = step_waste(record, config)
            if not record.scheduled:
                assert waste == Waste()
                continue
            packed = record.packed
            held = sum(int((row >= 0).sum()) for row in packed.block_table) * config.block_size
            assert waste.slack_in_last_blocks == held - int(packed.seq_lens.sum())
            assert waste.padded_tokens == packed.num_padded


def test_metrics_of_a_request_that_was_aborted() -> None:
    engine = Engine(EngineConfig(num_blocks=8), ScriptedExecutor({"a": [1, 2, 3], "b": [1]}), clock=Clock())
    engine.add_request(Request("a", [1], SamplingParams(max_tokens=3, ignore_eos=True)))
    engine.add_request(Request("b", [1]))
    engine.abort("b")
    engine.step()
    engine.abort("a")
    a, b = engine.outputs["a"].metrics, engine.outputs["b"].metrics
    assert (a.ttft, a.ttft_steps, a.e2el, a.tpot) == (0.0, 1, None, None)
    assert b == replace(b, ttft=None, e2el=None, itl=())
    engine.step()
    assert engine.metrics.totals.aborted == 2
    assert not engine.metrics._requests
    assert not engine.metrics._moments


def test_samples_are_exact_up_to_their_limit_and_fair_beyond() -> None:
    samples = Samples(limit=1000)
    assert samples.summary().mean is None
    values = list(range(100_000))
    for start in range(0, len(values), 700):
        samples.add(values[start : start + 700])
        if start == 0:
            assert samples.summary().p90 == pytest.approx(np.percentile(values[:700], 90))
    summary = samples.summary()
    assert len(samples._values) == 1000
    assert (summary.count, summary.mean) == (100_000, pytest.approx(49_999.5))
    assert summary.p50 == pytest.approx(50_000, rel=0.1)
    assert summary.p90 == pytest.approx(90_000, rel=0.1)
