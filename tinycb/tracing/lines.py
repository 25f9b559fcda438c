"""A file of lines in order, found by bisection: no step's line costs more than a few reads of the file.

Each line after the header begins with its step, or the step of its keyframe, and both it and `arrivals`
only grow. So a byte in the middle of the file says which half holds a line, and the file needs no index of
its own: one that is still being written, that was cut short, or that was edited by hand works as well.

Knows nothing of what a record means. Next: `reader.py`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

from tinycb.tracing.codec import TraceError, from_json

__all__ = ["Key", "TraceFile", "by_arrivals", "by_step"]

Key = Callable[[bytes], int | None]

_WINDOW = 1 << 14  # bytes: below this, lines are read one after the other
_PREFIX = 160  # bytes of a line that hold its step and its arrivals, if this package wrote it
_STEP = re.compile(rb'\{"(step|keyframe)":(\d+),')
_ARRIVALS = re.compile(rb'\{"(?:step|keyframe)":\d+,"arrivals":(\d+),')


def by_step(line: bytes) -> int | None:
    """2 * step for the keyframe before a step, 2 * step + 1 for the step itself; None for a broken line."""
    match = _STEP.match(line)
    if match:
        return 2 * int(match[2]) + (match[1] == b"step")
    return None


def by_arrivals(line: bytes) -> int | None:
    """How many requests had arrived before the line."""
    match = _ARRIVALS.match(line)
    return int(match[1]) if match else None


class TraceFile:
    """Whole lines of a file that may be growing. Offsets are in bytes; `end` is that of the last whole line.

    truncated: something follows the last whole line: half a line of a run that was killed, or is writing.
    Raises TraceError if the file cannot be opened, or does not begin with a whole line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        self.truncated = False
        try:
            self._file = io.BufferedReader(io.FileIO(path), buffer_size=8192)
        except OSError as error:
            raise TraceError(f"cannot read the trace {path}: {error.strerror or error}") from error
        try:
            self.refresh()
            if self.end == 0:
                what = "is empty" if not self.truncated else "ends before its first line does"
                raise TraceError(f"{path} is not a trace: it {what}")
            self.header, self.start = self.line(0)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def refresh(self) -> None:
        """Find the last whole line again. Raises TraceError if the file has become shorter."""
        try:
            size = self._file.seek(0, io.SEEK_END)
        except OSError as error:
            raise TraceError(f"cannot read the trace {self.path}: {error.strerror or error}") from error
        if size < self.end:
            raise TraceError(f"the trace {self.path} has become shorter: another run has begun to write it")
        end = self._newline_before(size, self.end)
        self.end = self.end if end is None else end + 1
        self.truncated = size > self.end

    def line(self, offset: int) -> tuple[bytes, int]:
        """The whole line at `offset`, without its newline, and the offset of the next."""
        try:
            self._file.seek(offset)
            line = self._file.readline()
        except OSError as error:
            raise TraceError(f"cannot read the trace {self.path}: {error.strerror or error}") from error
        return line.rstrip(b"\n"), offset + len(line)

    def last(self) -> int | None:
        """The offset of the last whole line, or None if there is only the header."""
        if self.end <= self.start:
            return None
        newline = self._newline_before(self.end - 1, self.start)
        return self.start if newline is None else newline + 1

    def last_at_most(self, key: Key, target: int) -> int | None:
        """The offset of the last line whose key is at most `target`; None if there is none.

        A line without a key is passed over; reading it is what reports it.
        """
        low, high = self.start, self.end  # the answer, if any, begins in low … high - 1
        while high - low > _WINDOW:
            middle = (low + high) // 2
            offset = self._begin_of_line(middle)
            if offset >= high:  # a long line reaches to the end of what is left: look where it begins
                newline = self._newline_before(middle, low)
                high = low + 1 if newline is None else middle
                continue
            value = self.key_at(key, offset)
            while value is None and (offset := self.line(offset)[1]) < high:
                value = self.key_at(key, offset)
            if value is not None and value <= target:
                low = offset
            else:
                high = middle
        found, offset = None, low
        while offset < high:
            value = self.key_at(key, offset)
            if value is not None and value > target:
                break
            if value is not None:
                found = offset
            if high - offset == 1:
                break
            _, offset = self.line(offset)
        return found

    def number(self, offset: int) -> int:
        """The number of the line at `offset`, from 1. Reads all before it, so only errors ask for it."""
        self._file.seek(0)
        count, left = 1, offset
        while left > 0 and (chunk := self._file.read(min(left, 1 << 20))):
            count += chunk.count(b"\n")
            left -= len(chunk)
        return count

    def key_at(self, key: Key, offset: int) -> int | None:
        """The key of the line at `offset`, mostly without reading all of it; None for a broken line."""
        self._file.seek(offset)
        value = key(self._file.read(_PREFIX))
        return value if value is not None else self._slow_key(key, self.line(offset)[0])

    def _slow_key(self, key: Key, line: bytes) -> int | None:
        """A line that another program has written may have other blanks and another order."""
        try:
            values = from_json(line)
            name = "keyframe" if "keyframe" in values else "step"
            head = b'{"%s":%d,"arrivals":%d,' % (name.encode(), values[name], values.get("arrivals", 0))
        except (ValueError, TypeError, KeyError):
            return None
        return key(head)

    def _begin_of_line(self, offset: int) -> int:
        """The first line that begins at or after `offset`, which is after the first line's beginning."""
        _, after = self.line(offset - 1)
        return after

    def _newline_before(self, offset: int, limit: int) -> int | None:
        """The last newline in limit … offset - 1."""
        high = offset
        while high > limit:
            low = max(limit, high - 8192)
            self._file.seek(low)
            at = self._file.read(high - low).rfind(b"\n")
            if at >= 0:
                return low + at
            high = low
        return None
