"""Writes a trace: a header, then a line a step, each handed to the system as its step ends.

A run that is killed leaves a file that is good up to its last whole line. What a line holds is in `codec.py`,
what a keyframe holds in `run_state.py`. The writer knows only the records it is given, and no engine.

Next: `reader.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinycb.tracing.codec import Moves, Origin, TraceError, step_to_json, to_json
from tinycb.tracing.header import FORMAT, VERSIONS, make_header
from tinycb.tracing.records import StepRecord
from tinycb.tracing.run_state import RunState

__all__ = ["KEYFRAME_EVERY", "TraceWriter", "make_header"]

KEYFRAME_EVERY = 64  # steps


class TraceWriter:
    """Writes records, of consecutive steps, to `path`; a file that is there is replaced.

    header: what `make_header` gives, or another trace's header. keyframe_every: steps from one keyframe to
    the next; a reader goes through at most that many lines to rebuild a step.

    Raises TraceError if the file cannot be made. If a later write fails, as on a full disk, that `write`
    alone raises TraceError; `error` keeps it, the file ends with its last whole line, and further records are
    let go.
    """

    def __init__(
        self, path: str | Path, header: Mapping[str, Any], *, keyframe_every: int = KEYFRAME_EVERY
    ) -> None:
        if keyframe_every < 1:
            raise ValueError(f"keyframe_every must be at least 1, not {keyframe_every}")
        self.path = Path(path)
        self.error: TraceError | None = None
        self.keyframe_every = keyframe_every
        self._state = RunState()
        self._queue: dict[str, Origin] = {}  # of those that never ran
        self._first_step: int | None = None
        self._next_step = 0
        self._offset = 0  # the end of the last whole line
        first = {"format": FORMAT, "version": VERSIONS[-1], **header, "keyframe_every": keyframe_every}
        line = to_json(first)
        try:
            self._file = io.FileIO(self.path, "w")
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {_cause(error)}") from error
        try:
            self._put(line)
        except BaseException:
            self._file.close()
            raise

    def write(self, record: StepRecord) -> None:
        """Write one step. Raises TraceError the first time the file cannot be written; later it does nothing.

        Raises ValueError if the step is not the one after the last, or the trace is closed.
        """
        if self.error is not None:
            return
        if self._file.closed:
            raise ValueError(f"the trace {self.path} is closed")
        if self._first_step is None:
            self._first_step = self._next_step = record.step
        if record.step != self._next_step:
            raise ValueError(f"step {self._next_step} comes next in the trace, not step {record.step}")

        frame = b""
        since = record.step - self._first_step
        if since and since % self.keyframe_every == 0:
            frame = to_json(self._state.take_keyframe(record.step))
        moves = self._moves(record, self._offset + len(frame))
        line = step_to_json(record, moves)
        self._state.apply(record, moves)
        self._next_step += 1
        self._put(frame + line)

    def _moves(self, record: StepRecord, offset: int) -> Moves:
        """Who leaves the queue in this step, whose line begins at `offset`, and with which table.

        One id may come, be aborted and come again between two steps. It is never in use twice, so the two
        take turns, and counting tells which of its arrivals was given up.
        """
        moves = Moves(arrivals=self._state.num_arrivals)
        given_up = Counter(record.aborted)
        for name in given_up:
            if name in self._state.live:
                given_up[name] -= 1
            elif name in self._queue:
                given_up[name] -= 1
                moves.dropped.append(self._queue.pop(name).number)
        for number, new in enumerate(record.new_requests, start=moves.arrivals):
            if given_up[new.request_id] > 0:
                given_up[new.request_id] -= 1
                moves.dropped.append(number)
            else:
                self._queue[new.request_id] = Origin(number, offset, len(new.prompt_token_ids))
        for name in record.admitted:
            if name in self._queue:
                moves.origins[name] = self._queue.pop(name)
        if any(name in record.prefix_hits for name in record.admitted):
            tables = record.block_tables
            moves.tables = {
                name: list(tables[name]) for name in record.admitted if name in record.prefix_hits
            }
        return moves

    def _put(self, data: bytes) -> None:
        """Append whole lines, or leave the file as it was."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._cut()
            self.error = TraceError(f"cannot write the trace {self.path}: {_cause(error)}")
            raise self.error from error
        except BaseException:
            self._cut()
            raise
        self._offset += len(data)

    def _cut(self) -> None:
        """Take back a half-written line; a pipe or a device has nothing to take back."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file.fileno(), self._offset)
            self._file.seek(self._offset)

    def close(self) -> None:
        """End the trace; closing twice does nothing. Raises TraceError if a loss is only now reported."""
        try:
            self._file.close()
        except OSError as error:
            if self.error is None:
                self.error = TraceError(f"cannot write the trace {self.path}: {_cause(error)}")
                raise self.error from error

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cause(error: OSError) -> str:
    return error.strerror or str(error)
