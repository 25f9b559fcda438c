"""Takes the records of a source into a history, one at a time and in order, as far as they are whole."""

from __future__ import annotations

from collections.abc import Iterator

from tinycb.tracing.codec import TraceError
from tinycb.tracing.records import StepRecord
from tinycb.tui.history import History
from tinycb.tui.source import Source

__all__ = ["Intake"]


class Intake:
    """history: of the steps so far. error: why no further one can be read, in one line, or ""."""

    def __init__(self, source: Source) -> None:
        self.history = History()
        self.error = ""
        self._source = source
        self._records: Iterator[StepRecord] | None = iter(source)

    @property
    def num_steps(self) -> int:
        """Steps that can be shown: all, or those before a broken one."""
        return self.history.num_steps if self.error else len(self._source)

    @property
    def is_done(self) -> bool:
        return self.history.num_steps >= self.num_steps

    def next(self) -> None:
        """Take in one record. Iterating costs a line a record; records that come later are looked up."""
        try:
            record = next(self._records, None) if self._records is not None else None
            if record is None:
                self._records = None
                record = self._source[self.history.num_steps]
            self.history.observe(record)
        except TraceError as error:
            self.error = str(error)
        except (KeyError, ValueError, TypeError) as error:
            step = self._source.steps[self.history.num_steps]
            self.error = f"the trace is broken: step {step} does not fit what came before it ({error!r:.80})"
