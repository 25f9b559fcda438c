"""Reads a trace: any step, in any order, with its rows and arrays as the live engine had them.

A step is found by bisection and costs one line. Its block tables and tokens cost the nearest keyframe before
it and the lines from there on; going forward from there costs a line a step. Nothing reads the whole file.

Imports no torch and nothing of a terminal. Next: `pool_state.py`, what `TraceReader.state` gives to a screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, overload

from tinycb.packing import Row
from tinycb.request import RequestStatus
from tinycb.tracing.arrivals import Arrivals
from tinycb.tracing.codec import Moves, Origin, TraceError, from_json, step_from_json
from tinycb.tracing.header import check_header
from tinycb.tracing.lines import TraceFile, by_step
from tinycb.tracing.pool_state import LazySequence, PoolState, RequestState, Waiting
from tinycb.tracing.records import StepRecord
from tinycb.tracing.run_state import LiveRequest, RunState

__all__ = ["TraceReader"]


class TraceReader(Sequence[StepRecord]):
    """The records of a trace, as a sequence; `refresh` follows a file that is still being written.

    header: the first line. truncated: something follows the last whole line; it is left out. A record's rows,
    tables and arrays, and the tokens of a state, are read when they are asked for, until `close`.

    Raises TraceError, in one line, if the file cannot be read, is no trace, or has an unknown version; and
    later, with the line's number, where a line is broken. Not safe to share between threads.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = TraceFile(self.path)
        try:
            try:
                self.header: dict[str, Any] = from_json(self._file.header)
            except ValueError as error:
                raise TraceError(f"{self.path} is not a trace: line 1 {error}") from None
            check_header(self.header, self.path)
            self.block_size: int = self.header["block_size"]
            self.num_blocks: int = self.header["num_blocks"]
            self._every = int(self.header.get("keyframe_every") or 256)
            self._first: int | None = None
            self._length = 0
            self._state = RunState()
            self._at: int | None = None  # the step whose record `_state` has taken in last
            self._next_offset = 0
            self._arrivals = Arrivals(self._file, self.block_size)
            self._measure()
        except BaseException:
            self._file.close()
            raise

    # ── the sequence ──────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return self._length

    @property
    def truncated(self) -> bool:
        return self._file.truncated

    @property
    def steps(self) -> range:
        """The numbers of the steps: `reader[i].step == reader.steps[i]`."""
        first = self._first or 0
        return range(first, first + self._length)

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | list[StepRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        step = self._step_of(index)
        return self._with_rows(self._step_at(self._offset_of(step), step)[0])

    def __iter__(self) -> Iterator[StepRecord]:
        """Every step there is now, in order, a line each."""
        offset = self._file.start
        for step in self.steps:
            record, _, offset = self._step_at(offset, step)
            yield self._with_rows(record)

    def state(self, index: int) -> PoolState:
        """Requests and blocks after step `index`. Raises IndexError if there is no such step."""
        step = self._step_of(index)
        state = self._state_after(step)
        requests = {name: self._request_state(name, request) for name, request in state.live.items()}
        at_hand = [requests[name] for name in state.preempted]
        return PoolState(
            step=step,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            requests=requests,
            running=tuple(state.running),
            waiting=Waiting(at_hand, state.queue.ranges, self._waiting_state),
            cached=frozenset(state.cached),
        )

    def refresh(self) -> int:
        """Look for steps that were written since; returns how many there are. See `truncated` as well."""
        before = self._length
        self._file.refresh()
        self._measure()
        return self._length - before

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TraceReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── lines ─────────────────────────────────────────────────────────────────────────────────────────

    def _measure(self) -> None:
        last = self._file.last()
        if last is None:
            return
        if self._first is None:
            self._first = self._rank(self._file.start) // 2
        rank = self._rank(last)  # a keyframe stands before its step
        self._length = (rank + 1) // 2 - self._first

    def _rank(self, offset: int) -> int:
        rank = self._file.key_at(by_step, offset)
        if rank is None:
            self._object_at(offset)
            raise self._broken(offset, "has no step")
        return rank

    def _step_of(self, index: int) -> int:
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"step {index} of a trace of {self._length} steps")
        assert self._first is not None
        return self._first + position

    def _offset_of(self, step: int) -> int:
        if self._at is not None and step == self._at + 1:
            return self._next_offset
        offset = self._file.last_at_most(by_step, 2 * step + 1)
        if offset is None:
            return self._file.start
        found = self._file.key_at(by_step, offset)
        return offset if found == 2 * step + 1 else self._file.line(offset)[1]  # what stands in its place

    def _object_at(self, offset: int) -> tuple[dict[str, Any], int]:
        line, after = self._file.line(offset)
        try:
            return from_json(line), after
        except ValueError as error:
            raise self._broken(offset, str(error)) from None

    def _step_at(self, offset: int, step: int) -> tuple[StepRecord, Moves, int]:
        """The step whose line is at `offset`, or follows a keyframe there, and the offset after it."""
        values, after = self._object_at(offset)
        if "keyframe" in values and after < self._file.end:
            offset = after
            values, after = self._object_at(offset)
        if values.get("step") != step:
            raise self._broken(offset, f"is not step {step}, which comes next")
        try:
            record, moves = step_from_json(values, self.block_size)
        except ValueError as error:
            raise self._broken(offset, str(error)) from None
        return record, moves, after

    def _broken(self, offset: int, what: str) -> TraceError:
        return TraceError(f"the trace {self.path} is broken: line {self._file.number(offset)} {what}")

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────

    def _state_after(self, step: int) -> RunState:
        """Bring `_state` to just after `step`, from where it is or from the keyframe before."""
        assert self._first is not None
        nearest = step - (step - self._first) % self._every
        if self._at is None or not max(nearest - 1, self._first) <= self._at <= step:
            self._load_keyframe(nearest)
        while self._at is None or self._at < step:
            number = self._first if self._at is None else self._at + 1
            offset = self._next_offset
            record, moves, after = self._step_at(offset, number)
            try:
                self._state.apply(record, moves)
            except (KeyError, ValueError, TypeError) as error:
                self._at = None
                raise self._broken(offset, f"does not fit what came before it ({error!r:.80})") from None
            self._at, self._next_offset = number, after
        return self._state

    def _load_keyframe(self, step: int) -> None:
        """Set `_state` to that before `step`, or to an earlier one if the keyframe is missing."""
        assert self._first is not None
        self._at, self._state, self._next_offset = None, RunState(), self._file.start
        while step > self._first:
            frame, after = self._keyframe(step)
            if frame is not None:
                self._state = RunState.from_keyframe(frame)
                self._at, self._next_offset = step - 1, after
                return
            step -= self._every

    def _keyframe(self, step: int) -> tuple[dict[str, Any] | None, int]:
        offset = self._file.last_at_most(by_step, 2 * step)
        if offset is None:
            return None, 0
        values, after = self._object_at(offset)
        return (values if values.get("keyframe") == step else None), after

    # ── what a state leaves in the file ───────────────────────────────────────────────────────────────

    def _with_rows(self, record: StepRecord) -> StepRecord:
        twin = copy(record)  # a record that held itself would wait for the garbage collector
        record.rows_source = lambda: self._rows(twin)
        return record

    def _rows(self, record: StepRecord) -> Sequence[Row]:
        if record.error is not None:
            return ()
        state = self._state_after(record.step)
        rows = []
        for name in record.running if record.pad else record.scheduled:
            request = state.live.get(name) or state.left.get(name)
            num_tokens, start = record.scheduled.get(name, 0), record.num_computed.get(name, 0)
            if request is None:  # aborted, and a static batch still carries its slot
                rows.append(Row(name, (), start, num_tokens, (), samples=False))
                continue
            tokens = self._tokens(name, request)
            samples = num_tokens > 0 and start + num_tokens == len(tokens) - (name in record.sampled)
            table = tuple(request.block_table) if num_tokens else ()
            rows.append(Row(name, tokens, start, num_tokens, table, samples))
        return rows

    def _request_state(self, name: str, request: LiveRequest) -> RequestState:
        def load_texts() -> list[str]:
            new = self._arrivals.find(origin)
            return (new.texts or [""] * origin.num_prompt_tokens) + self._older(name, request)[1]

        origin, outputs = request.origin, request.texts
        return RequestState(
            request_id=name,
            status=request.status,
            num_prompt_tokens=origin.num_prompt_tokens,
            num_computed_tokens=request.num_computed_tokens,
            token_ids=self._tokens(name, request),
            texts=LazySequence(request.num_tokens - len(outputs), outputs, len(outputs), load_texts),
            block_table=tuple(request.block_table),
        )

    def _tokens(self, name: str, request: LiveRequest) -> LazySequence[int]:
        def load() -> list[int]:
            return list(self._arrivals.find(origin).prompt_token_ids) + self._older(name, request)[0]

        origin, outputs = request.origin, request.outputs
        return LazySequence(request.num_tokens - len(outputs), outputs, len(outputs), load)

    def _waiting_state(self, number: int) -> RequestState:
        new = self._arrivals.find(Origin(number, -1, 0))
        tokens = list(new.prompt_token_ids)
        texts = new.texts or [""] * len(tokens)
        return RequestState(new.request_id, RequestStatus.WAITING, len(tokens), 0, tokens, texts)

    def _older(self, name: str, request: LiveRequest) -> tuple[list[int], list[str]]:
        """The outputs before those of `request`, out of the keyframes before the one it came from."""
        tokens: list[int] = []
        texts: list[str] = []
        step = request.keyframe
        while len(tokens) < request.num_older:
            step -= self._every
            frame, _ = self._keyframe(step)
            entry = frame["requests"].get(name) if frame else None
            if entry is None:
                raise TraceError(f"the trace {self.path} is broken: the keyframe of step {step} lacks {name}")
            tokens = entry["outputs"] + tokens
            texts = (entry.get("texts") or [""] * len(entry["outputs"])) + texts
        return tokens, texts
