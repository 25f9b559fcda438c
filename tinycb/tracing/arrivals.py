"""Finds a request's arrival, and with it its prompt, by its number: it was the n-th to arrive in the run.

Next: `reader.py`, which asks only when somebody looks at a prompt.
"""

from __future__ import annotations

from tinycb.tracing.codec import Origin, TraceError, from_json, step_from_json
from tinycb.tracing.lines import TraceFile, by_arrivals
from tinycb.tracing.records import NewRequest

__all__ = ["Arrivals"]


class Arrivals:
    """The arrivals of a trace. It keeps those of one line, because neighbours often came together."""

    def __init__(self, file: TraceFile, block_size: int) -> None:
        self._file = file
        self._block_size = block_size
        self._first = 0  # the number of the first in `_found`
        self._found: list[NewRequest] = []

    def find(self, origin: Origin) -> NewRequest:
        """At the offset that is known for it, or by bisection if the file has been edited since.

        Raises TraceError if the trace has no such arrival.
        """
        number = origin.number
        if not (self._keeps(number) or self._read(origin.offset, number)):
            offset = self._file.last_at_most(by_arrivals, number)
            if offset is None or not self._read(offset, number):
                raise TraceError(f"the trace {self._file.path} is broken: arrival {number} is missing")
        return self._found[number - self._first]

    def _keeps(self, number: int) -> bool:
        return self._first <= number < self._first + len(self._found)

    def _read(self, offset: int, number: int) -> bool:
        """Read the line at `offset`, if there is one, and tell whether the request arrived in it."""
        if not self._file.start <= offset < self._file.end:
            return False
        try:
            record, moves = step_from_json(from_json(self._file.line(offset)[0]), self._block_size)
        except (ValueError, KeyError):  # the middle of some other line
            return False
        self._first, self._found = moves.arrivals, record.new_requests
        return self._keeps(number)
