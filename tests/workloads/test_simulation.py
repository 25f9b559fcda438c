"""Workloads on the engine in simulated time: nothing lost, exact counts, memory that does not grow."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycb import Engine, EngineConfig
from tinycb.costs.devices import DEVICES
from tinycb.costs.roofline import CostModel
from tinycb.costs.shapes import load_shape
from tinycb.costs.sizing import size_engine
from tinycb.executors import CostModelExecutor, SimulatedClock
from tinycb.load_report import POINTS, Course, LoadReport, Point
from tinycb.scheduling import ContinuousScheduler
from tinycb.scheduling.scheduler import SchedulerOutput
from tinycb.simulation import StuckError, serve_workload, simulated_wait
from tinycb.workloads import Arrival, Piece, Workload, open_workload

COST = CostModel(load_shape("llama-3-8b"), DEVICES["h100"])
POLICIES = ["static", "continuous", "chunked"]
SMALL = {"block_size": 4, "num_blocks": 64, "max_num_batched_tokens": 32, "max_num_seqs": 4, "check": True}


def simulate(
    workload: Workload, on_step=lambda record: None, slo=None, executor=None, **config
) -> LoadReport:
    clock = SimulatedClock()
    engine = Engine(
        EngineConfig(**(SMALL | config)), CostModelExecutor(COST, clock, max_model_len=None), clock=clock
    )
    report = serve_workload(engine, workload, simulated_wait(clock), policy="p", slo=slo, on_step=on_step)
    assert engine.pool.num_free == engine.pool.num_blocks
    assert not engine.outputs
    return report


def traffic(*rows: tuple[float, int, int]) -> Workload:
    return Workload("w", [Arrival(f"r{i}", t, [Piece(f"r{i}", p)], o) for i, (t, p, o) in enumerate(rows)])


ROWS = st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12)


@given(rows=ROWS, policy=st.sampled_from(POLICIES))
@settings(max_examples=60)
def test_every_request_gets_its_tokens_under_every_policy(rows, policy: str) -> None:
    report = simulate(traffic(*sorted(rows)), batching=policy)
    assert report.totals.returned == len(rows)
    assert report.totals.num_output_tokens == sum(output for _, _, output in rows)
    assert report.problems == []
    assert 0 < report.slot_use <= 1
    if policy != "static":
        assert report.slot_use == 1 or policy == "chunked"
        assert report.totals.waste.padded_tokens == 0


@given(rows=ROWS, policy=st.sampled_from(POLICIES))
@settings(max_examples=60)
def test_a_step_takes_what_its_arrays_cost(rows, policy: str) -> None:
    """What the executor sums over a step is what the packed arrays say that a kernel would get."""

    def look(record) -> None:
        if not record.scheduled:
            return
        packed = record.packed
        rows = [
            (record.scheduled.get(n, 0), int(s))
            for n, s in zip(packed.request_ids, packed.seq_lens, strict=True)
        ]
        work = COST.work(
            [row for row in rows if row[0]],
            num_samples=len(packed.sample_indices),
            num_padded=packed.num_padded,
        )
        assert record.time_end - record.time_start == pytest.approx(COST.floor(work).seconds)

    simulate(traffic(*sorted(rows)), on_step=look, batching=policy)


def test_time_jumps_to_an_arrival_when_nothing_runs_and_latency_counts_from_it() -> None:
    report = simulate(traffic((0, 8, 1), (100, 8, 1)))
    assert 100 < report.totals.duration < 100.1
    assert report.totals.ttft.p99 < 0.01
    assert report.totals.steps == 2


def test_a_request_that_can_never_fit_is_told_and_the_rest_is_served() -> None:
    report = simulate(traffic((0, 8, 2), (0, 1000, 2), (0, 8, 2)))
    assert report.totals.returned == 2
    assert len(report.problems) == 1
    assert report.problems[0].startswith("r1: the prompt has 1000 tokens")


def test_an_answer_that_outgrows_the_pool_is_cut_and_counted() -> None:
    report = simulate(traffic((0, 8, 1000)), num_blocks=8)
    assert (report.cut, report.totals.returned) == (1, 1)


def test_good_requests_are_those_that_meet_every_level() -> None:
    workload = traffic(*[(0, 40, 10)] * 8)
    assert simulate(workload, slo={"ttft": 100, "tpot": 100}).good == 8
    assert simulate(workload, slo={"ttft": 1e-9}).good == 0
    some = simulate(workload, slo={"ttft": 0.02}, max_num_seqs=2)
    assert 0 < some.good < 8
    assert some.goodput == pytest.approx(some.good / some.totals.duration)
    assert simulate(workload).goodput is None


def test_preempted_work_is_done_again_and_seen_in_the_counts() -> None:
    report = simulate(traffic(*[(0, 20, 30)] * 4), num_blocks=24, prefix_caching=False, batching="continuous")
    assert report.totals.num_preemptions > 0
    assert report.totals.waste.recomputed_tokens > 0
    assert report.totals.returned == 4


def test_shared_prefixes_are_hits() -> None:
    workload = open_workload("poisson:requests=30,rate=50,shared_prefix=64,prompt=20,output=5")
    config = {"num_blocks": 512, "block_size": 16, "max_num_batched_tokens": 256}
    hits = simulate(workload, **config).totals.prefix_hit_tokens
    assert hits >= 25 * 64
    assert simulate(workload, prefix_caching=False, **config).totals.prefix_hit_tokens == 0


def test_a_run_that_stops_reports_what_it_has() -> None:
    clock = SimulatedClock()
    engine = Engine(EngineConfig(**SMALL), CostModelExecutor(COST, clock), clock=clock)
    steps = iter(range(100))
    workload = traffic(*[(0, 8, 8)] * 20)
    report = serve_workload(engine, workload, simulated_wait(clock), should_stop=lambda: next(steps) == 10)
    assert report.interrupted
    assert 0 < report.totals.returned < 20


def test_a_scheduler_that_runs_nobody_is_found_out() -> None:
    class Idle(ContinuousScheduler):
        def schedule(self) -> SchedulerOutput:
            return SchedulerOutput()

    with pytest.raises(StuckError, match="1 requests wait, and no step runs any of them"):
        simulate(traffic((0, 8, 2)), batching=Idle, check=False)


def test_memory_does_not_grow_with_the_number_of_steps() -> None:
    """Four times the requests, and the peak hardly moves: all but the percentiles' samples is bounded."""

    def peak(requests: int) -> int:
        workload = open_workload(f"poisson:requests={requests},rate=40,prompt=8,output=40,spread=0")
        tracemalloc.start()
        simulate(workload, check=False, num_blocks=512, max_num_seqs=32)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    few, many = peak(100), peak(400)
    samples = (
        2 * 8 * 300 * 40 * 5
    )  # a float and a step count each, of `itl` and `itl_steps`, kept up to 100,000
    assert many < few + samples + 200_000


def test_the_course_of_a_long_run_is_bounded_and_keeps_its_means() -> None:
    course = Course()
    for step in range(10_000):
        course.add(Point(step, step + 1, step % 10, 10, 0, 5))
    assert POINTS / 2 <= len(course.points) <= POINTS
    assert (course.points[0].start, course.points[-1].end) == (0, 10_000)
    mean = sum((p.end - p.start) * p.rows for p in course.points) / 10_000
    assert mean == pytest.approx(4.5)
    few = course.coarse(100)
    assert len(few) <= 100
    assert sum((p.end - p.start) * p.rows for p in few) / 10_000 == pytest.approx(4.5)


def test_knobs_follow_from_device_and_model() -> None:
    sizing = size_engine(COST, int(0.9 * DEVICES["h100"].memory), 16, 1000)
    assert sizing.num_blocks == 26_674
    assert sizing.max_num_batched_tokens == 384  # 326 rows, up to a multiple of 64
    assert sizing.max_num_seqs == 256
    assert size_engine(COST, int(0.9 * DEVICES["h100"].memory), 16, 20_000).max_num_seqs == 21
    with pytest.raises(ValueError, match="weights take"):
        size_engine(COST, 10**10, 16, 1000)
