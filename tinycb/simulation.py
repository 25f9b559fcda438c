"""A workload on an engine, request by request as they arrive, to the end or until it is told to stop.

The same loop serves simulated time, which jumps to the next arrival when nothing runs, and real time, which
waits for it. What is exact (steps, tokens, slots, blocks) and what is seconds are kept apart in `LoadReport`;
whether the seconds are modelled or measured, only the caller's clock knows.

Memory does not grow with the number of steps: answers are counted and dropped, and the course of the run is
kept at a bounded number of points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tinycb.engine import Engine
from tinycb.executors import SimulatedClock
from tinycb.generation import Patience, StuckError
from tinycb.load_report import LoadReport, Point
from tinycb.request import FinishReason, Request, RequestMetrics, SamplingParams
from tinycb.tracing.records import StepRecord
from tinycb.workloads.traffic import Arrival, Workload

__all__ = ["StuckError", "meets", "serve_workload", "simulated_wait"]


def simulated_wait(clock: SimulatedClock) -> Callable[[float], None]:
    """Waiting, on a simulated clock: it is already then."""

    def wait(until: float) -> None:
        clock.now = max(clock.now, until)

    return wait


def serve_workload(
    engine: Engine,
    workload: Workload,
    wait: Callable[[float], None],
    *,
    policy: str = "",
    slo: Mapping[str, float] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> LoadReport:
    """Serve every arrival at its time and say what came of it. Closes the engine.

    wait: called with the moment, on the engine's clock, of the next arrival when there is nothing to do.
    slo: the most seconds for `ttft`, `tpot` and `e2el` that still count as good. on_step: sees each record.
    should_stop: asked before each step; what was served until then is reported.

    Raises StuckError if requests wait and no step runs any of them, and whatever the executor raises.
    """
    config, vocab = engine.config, engine.executor.vocab_size or 1 << 20
    report = LoadReport(policy, config.max_num_seqs, engine.pool.num_blocks, engine.metrics.totals)
    if slo is not None:
        report.good = 0
    pending: deque[Arrival] = deque(workload.arrivals)
    start, patience = engine.clock(), Patience(engine)
    try:
        while pending or engine.has_unfinished_requests():
            if should_stop():
                report.interrupted = True
                break
            now = engine.clock() - start
            while pending and pending[0].time <= now:
                _add(engine, pending.popleft(), start, vocab, report)
            if not engine.has_unfinished_requests():
                if pending:
                    wait(start + pending[0].time)
                continue
            record = engine.step()
            patience.observe(record)
            _observe(engine, record, report)
            _take_answers(engine, record, report, slo)
            if on_step is not None:
                on_step(record)
    finally:
        report.totals = engine.metrics.totals
        engine.close()
    return report


def _add(engine: Engine, arrival: Arrival, start: float, vocab: int, report: LoadReport) -> None:
    params = SamplingParams(max_tokens=arrival.output_tokens, ignore_eos=True)
    request = Request(arrival.request_id, arrival.token_ids(vocab), params, start + arrival.time)
    try:
        engine.add_request(request)
    except ValueError as error:
        report.problems.append(f"{arrival.where or arrival.request_id}: {error}")


def _observe(engine: Engine, record: StepRecord, report: LoadReport) -> None:
    if not record.scheduled:
        return
    rows, held = len(record.scheduled), len(record.running)
    blocks = report.num_blocks - record.num_free_blocks
    report.rows_run += rows
    report.slots_held += held
    report.peak_blocks = max(report.peak_blocks, blocks)
    report.most_tokens = max(report.most_tokens, sum(record.scheduled.values()) + record.num_padded)
    report.block_seconds += blocks * (record.time_end - record.time_start)
    point = Point(record.time_start, record.time_end, rows, held, record.num_waiting, blocks)
    report.course.add(point)


def _take_answers(
    engine: Engine, record: StepRecord, report: LoadReport, slo: Mapping[str, float] | None
) -> None:
    for name in record.returned:
        output = engine.outputs.pop(name)
        metrics = output.metrics
        if metrics is None or output.finish_reason is not FinishReason.LENGTH:
            continue
        if metrics.itl:
            report.longest_gap = max(report.longest_gap or 0.0, *metrics.itl)
        if slo is not None and report.good is not None:
            report.good += meets(metrics, slo)
    for decision in record.decisions:
        report.cut += decision.action == "finish" and decision.reason in ("max_model_len", "pool_end")


def meets(metrics: RequestMetrics, slo: Mapping[str, float]) -> bool:
    """Whether a request met every service level. An output of one token has no `tpot` to miss."""
    values: Sequence[tuple[float | None, float]] = [(getattr(metrics, n), most) for n, most in slo.items()]
    return all(value is None or value <= most for value, most in values)
