"""What came of a workload under one policy: exact counts apart from seconds, and the course of the run.

Plain data in bounded memory; whether the seconds are modelled or measured, only who made it knows. Filled in
by `simulation.py`, or from a trace by `report_of`; shown by `view/load_tables.py` and `view/load_plots.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tinycb.config import EngineConfig
from tinycb.request import RequestMetrics
from tinycb.tracing.metrics import MetricsCollector, Totals
from tinycb.tracing.records import StepRecord

__all__ = ["Course", "Interference", "LoadReport", "Point", "meets", "report_of"]

POINTS = 2048  # of the course that is kept


class Point(NamedTuple):
    """A stretch of the run, in means over time. rows: that advanced. blocks: in use."""

    start: float
    end: float
    rows: float
    running: float
    waiting: float
    blocks: float

    def joined(self, other: Point) -> Point:
        mine, theirs = self.end - self.start, other.end - other.start
        whole = mine + theirs or 1.0
        share = mine / whole if mine + theirs else 0.5
        means = [a * share + b * (1 - share) for a, b in zip(self[2:], other[2:], strict=True)]
        return Point(self.start, other.end, *means)


class Course:
    """The course of a run in at most `POINTS` points: when they are full, neighbours become one."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._steps_a_point = 1
        self._steps = 0

    def add(self, point: Point) -> None:
        if self._steps % self._steps_a_point == 0:
            if len(self.points) == POINTS:
                self.points = [a.joined(b) for a, b in zip(self.points[::2], self.points[1::2], strict=True)]
                self._steps_a_point *= 2
            self.points.append(point)
        else:
            self.points[-1] = self.points[-1].joined(point)
        self._steps += 1

    def coarse(self, limit: int) -> list[Point]:
        """The course in at most `limit` points."""
        points = self.points
        while len(points) > limit:
            odd = points[-1:] if len(points) % 2 else []
            pairs = zip(points[::2], points[1::2], strict=False)
            points = [a.joined(b) for a, b in pairs] + odd
        return points


@dataclass(slots=True)
class LoadReport:
    """What came of a workload under one configuration.

    totals: of the run. slots_held, rows_run: summed over forwards; their ratio is the use of slots.
    peak_blocks: most in use at once. cut: answers that ended early at `max_model_len` or at the pool's end.
    good: requests that met every service level. problems: a line for each request that was refused.
    """

    policy: str
    max_num_seqs: int
    num_blocks: int
    totals: Totals
    slots_held: int = 0
    rows_run: int = 0
    peak_blocks: int = 0
    block_seconds: float = 0.0
    cut: int = 0
    good: int | None = None
    longest_gap: float | None = None
    most_tokens: int = 0
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    course: Course = field(default_factory=Course)

    def observe(self, record: StepRecord) -> None:
        """Count one step."""
        for decision in record.decisions:
            self.cut += decision.action == "finish" and decision.reason in ("max_model_len", "pool_end")
        if not record.scheduled:
            return
        rows, held = len(record.scheduled), len(record.running)
        blocks = self.num_blocks - record.num_free_blocks
        self.rows_run += rows
        self.slots_held += held
        self.peak_blocks = max(self.peak_blocks, blocks)
        self.most_tokens = max(self.most_tokens, sum(record.scheduled.values()) + record.num_padded)
        self.block_seconds += blocks * (record.time_end - record.time_start)
        point = Point(record.time_start, record.time_end, rows, held, record.num_waiting, blocks)
        self.course.add(point)

    def answered(self, metrics: RequestMetrics, slo: Mapping[str, float] | None) -> None:
        """Count an answer that was given in full. slo: the most seconds that still count as good."""
        if metrics.itl:
            self.longest_gap = max(self.longest_gap or 0.0, *metrics.itl)
        if slo is not None:
            self.good = (self.good or 0) + meets(metrics, slo)

    @property
    def slot_use(self) -> float:
        """Rows that advanced, of slots that were held."""
        return self.rows_run / self.slots_held if self.slots_held else 0.0

    @property
    def batch_fill(self) -> float:
        """Rows that advanced, of `max_num_seqs` in every forward."""
        return self.rows_run / (self.max_num_seqs * self.totals.forwards) if self.totals.forwards else 0.0

    @property
    def padding(self) -> float:
        """Padded tokens, of all that went through the forwards."""
        tokens = self.totals.forward_tokens
        return self.totals.waste.padded_tokens / tokens if tokens else 0.0

    @property
    def kv_use(self) -> float:
        """Blocks in use, of the pool, on average over the seconds of forwards."""
        seconds = sum(point.end - point.start for point in self.course.points)
        return self.block_seconds / seconds / self.num_blocks if seconds else 0.0

    @property
    def goodput(self) -> float | None:
        """Requests a second that met every service level; None where none was asked for."""
        if self.good is None:
            return None
        return self.good / self.totals.duration if self.totals.duration > 0 else 0.0


def report_of(
    records: Iterable[StepRecord],
    config: EngineConfig,
    num_blocks: int,
    *,
    policy: str = "",
    slo: Mapping[str, float] | None = None,
) -> LoadReport:
    """The report of a run that was recorded, read from its records."""
    metrics, ends = MetricsCollector(config), dict[str, str]()
    report = LoadReport(policy, config.max_num_seqs, num_blocks, metrics.totals)
    report.good = None if slo is None else 0
    for record in records:
        metrics.observe(record)
        report.observe(record)
        ends.update(record.finished)
        for name in record.returned:
            request = metrics.finished(name)
            if ends.pop(name, None) == "length":
                report.answered(request, slo)
    report.totals = metrics.totals
    return report


def meets(metrics: RequestMetrics, slo: Mapping[str, float]) -> bool:
    """Whether a request met every service level. An output of one token has no `tpot` to miss."""
    values = [(getattr(metrics, name), most) for name, most in slo.items()]
    return all(value is None or value <= most for value, most in values)


@dataclass(frozen=True, slots=True)
class Interference:
    """What a long prompt did to decoding requests; `interference.py` makes it happen.

    gaps: request → (moment, gap) of each pair of tokens, moments count from the long prompt's arrival.

    ttft: of the long prompt. chunks: forwards that its prompt took. before: the median gap until it came.
    worst: the longest gap afterwards.
    """

    name: str
    gaps: dict[str, list[tuple[float, float]]]
    ttft: float
    chunks: int
    before: float
    worst: float

    @property
    def slowdown(self) -> float:
        """The worst gap, in medians of the gaps before."""
        return self.worst / self.before
