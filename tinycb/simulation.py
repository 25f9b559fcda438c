"""A workload on an engine, request by request as they arrive, to the end or until it is told to stop.

The same loop serves simulated time, which jumps to the next arrival when nothing runs, and real time, which
waits for it. What is exact (steps, tokens, slots, blocks) and what is seconds are kept apart in `LoadReport`;
whether the seconds are modelled or measured, only the caller's clock knows.

Memory does not grow with the number of steps: answers are counted and dropped, and the course of the run is
kept at a bounded number of points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from tinycb.engine import Engine
from tinycb.executors import SimulatedClock
from tinycb.generation import Patience, StuckError
from tinycb.load_report import LoadReport
from tinycb.request import FinishReason, Request, SamplingParams
from tinycb.tracing.records import StepRecord
from tinycb.workloads.traffic import Arrival, Workload

__all__ = ["StuckError", "serve_workload", "simulated_wait"]


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
            report.observe(record)
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


def _take_answers(
    engine: Engine, record: StepRecord, report: LoadReport, slo: Mapping[str, float] | None
) -> None:
    for name in record.returned:
        output = engine.outputs.pop(name)
        if output.metrics is not None and output.finish_reason is FinishReason.LENGTH:
            report.answered(output.metrics, slo)
