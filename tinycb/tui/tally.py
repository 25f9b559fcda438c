"""What two runs come to, side by side: totals, the first step in which they differ, and their answers.

Takes in a record of each at a time, so that long traces are compared while they are on the screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinycb.tracing.codec import TraceError
from tinycb.tracing.header import config_or_similar
from tinycb.tracing.metrics import MetricsCollector, Totals
from tinycb.tracing.records import StepRecord
from tinycb.tui.source import Source

__all__ = ["Tally"]

_COMPARED = (
    *("arrived", "refused", "aborted", "preempted", "admitted", "scheduled", "num_computed", "prefix_hits"),
    *("blocks_allocated", "blocks_freed", "num_padded", "sampled", "finished", "returned"),
)


class Tally:
    """first_difference: index and field. answers: id → tokens, of the first run; differing: ids."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._records: list[Iterator[StepRecord]] = [iter(source) for source in sources]
        self._metrics = [MetricsCollector(config_or_similar(source.header)) for source in sources]
        self.answers: tuple[dict[str, list[int]], ...] = ({}, {})
        self.index = 0
        self.is_done = False
        self.first_difference: tuple[int, str] | None = None

    def work(self) -> None:
        """Take in the next step of both."""
        pair = [self._next(records) for records in self._records]
        if pair == [None, None]:
            self.is_done = True
            return
        for record, metrics, answers in zip(pair, self._metrics, self.answers, strict=True):
            if record is not None:
                metrics.observe(record)
                for name in record.returned:
                    metrics.finished(name)
                for name, token in record.sampled.items():
                    answers.setdefault(name, []).append(token)
        if self.first_difference is None:
            field = _difference(*pair)
            if field is not None:
                self.first_difference = self.index, field
        self.index += 1

    @staticmethod
    def _next(records: Iterator[StepRecord]) -> StepRecord | None:
        try:
            return next(records, None)
        except TraceError:  # the screen says so when it comes to that step
            return None

    @property
    def totals(self) -> list[Totals]:
        return [metrics.totals for metrics in self._metrics]

    def verdict(self) -> str:
        """Whether both gave the same answers, in a few words."""
        left, right = self.answers
        common = [name for name in left if name in right]
        for name in common:
            if left[name] != right[name]:
                return f"the answers to {name} differ"
        if len(left) != len(right):
            return f"the same tokens for the {len(common)} requests that both answered"
        return f"the same tokens for all {len(common)} requests"


def _difference(left: StepRecord | None, right: StepRecord | None) -> str | None:
    """The first field in which two steps differ."""
    if left is None or right is None:
        return "one run is over"
    return next((name for name in _COMPARED if getattr(left, name) != getattr(right, name)), None)
