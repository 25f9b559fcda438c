"""One step, frozen: everything that any panel shows of it, worked out once.

The picture is that of the step itself, after its blocks were given out and before anything was let go. So a
request that ends in the step still has its blocks here, each packed token has its slot, and the free blocks
are `record.num_free_blocks`.

Draws nothing and remembers no other step. Next: `selection.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tinycb.packing import PackedBatch, Row, pack
from tinycb.tracing.pool_state import PoolState, RequestState
from tinycb.tracing.records import StepRecord
from tinycb.tui.selection import Place, Selection
from tinycb.tui.source import Source

__all__ = ["Snapshot", "Snapshots"]

KEPT = 64  # snapshots, and prompts
LOOKED_THROUGH = 64  # places of a queue; each may have to be read from the file
BEHIND = 16  # snapshots that are made ahead of somebody who goes back


@dataclass(frozen=True)
class Snapshot:
    """What is on the screen. index: of the step in its source; step: its number.

    state: after the step. requests: those that have run, as they were in it. rows: of the batch.
    row_of: (T,) the row of each packed token. key_start: (R+1,) where each row's keys begin in S.
    tables: block tables in the step. lengths: keys of each that are in memory when the step ends.
    owners: block → requests. fresh, freed: block → the request that got it or gave it up in this step.
    """

    index: int
    step: int
    record: StepRecord
    state: PoolState
    requests: Mapping[str, RequestState]
    rows: Sequence[Row]
    packed: PackedBatch
    row_of: npt.NDArray[np.int64]
    key_start: npt.NDArray[np.int64]
    tables: Mapping[str, tuple[int, ...]]
    lengths: Mapping[str, int]
    owners: Mapping[int, tuple[str, ...]]
    fresh: Mapping[int, str]
    freed: Mapping[int, str]
    block_size: int
    num_blocks: int
    prompts: Mapping[str, Sequence[str]]

    @property
    def num_tokens(self) -> int:
        """T: packed query tokens, padding included."""
        return int(self.packed.query_start_loc[-1])

    @property
    def num_keys(self) -> int:
        """S: keys of all rows, side by side."""
        return int(self.key_start[-1])

    @property
    def num_held(self) -> int:
        return len(self.owners)

    @cached_property
    def _row_numbers(self) -> dict[str, int]:
        return {row.request_id: r for r, row in enumerate(self.rows)}

    def row_index(self, request_id: str) -> int | None:
        """The request's row of the batch, if it has one."""
        return self._row_numbers.get(request_id)

    def token_at(self, t: int) -> tuple[str, int] | None:
        """Request and position of a packed token; None for padding."""
        if not 0 <= t < self.num_tokens or self.packed.slot_mapping[t] < 0:
            return None
        return self.rows[int(self.row_of[t])].request_id, int(self.packed.positions[t])

    def key_at(self, s: int) -> tuple[str, int] | None:
        """Request and position of a packed key."""
        if not 0 <= s < self.num_keys:
            return None
        r = int(np.searchsorted(self.key_start, s, side="right")) - 1
        return self.rows[r].request_id, s - int(self.key_start[r])

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """For each query, the keys begin … end - 1 that it may attend to: two comparisons are the mask."""
        q = self.packed.query_start_loc.astype(np.int64)  # (R+1,)
        r, lens = self.row_of, self.packed.seq_lens.astype(np.int64)  # (T,), (R,)
        counts = lens[r] - np.diff(q)[r] + (np.arange(self.num_tokens) - q[r]) + 1  # (T,)
        begin = self.key_start[r]
        return list(zip(begin.tolist(), (begin + np.maximum(counts, 0)).tolist(), strict=True))

    def block_fill(self, request_id: str, logical: int) -> int:
        """How many slots of a request's block hold a token when the step ends."""
        left = self.lengths.get(request_id, 0) - logical * self.block_size
        return max(0, min(self.block_size, left))

    def text(self, request_id: str, position: int) -> str:
        """A token's text, "" where the trace has none."""
        prompt = self.prompts.get(request_id)
        if prompt is not None and position < len(prompt):
            return prompt[position]
        request = self.requests.get(request_id)
        if request is None or position >= request.num_tokens:
            return ""
        return request.texts[position : position + 1][0]

    def token_id(self, request_id: str, position: int) -> int | None:
        r, request = self.row_index(request_id), self.requests.get(request_id)
        tokens = self.rows[r].token_ids if r is not None else request.token_ids if request else ()
        return tokens[position] if position < len(tokens) else None

    def num_prompt(self, request_id: str) -> int:
        """Tokens of its prompt; a request that comes and goes in one step is found in its row alone."""
        request, r = self.requests.get(request_id), self.row_index(request_id)
        if request is not None:
            return request.num_prompt_tokens
        if r is None:
            return 0
        return len(self.rows[r].token_ids) - (request_id in self.record.sampled)

    def decodes(self, request_id: str) -> bool:
        """Whether what it runs in this step is one token past its prompt."""
        record = self.record
        if record.scheduled.get(request_id) != 1:
            return False
        return record.num_computed.get(request_id, 0) >= self.num_prompt(request_id)

    def place(self, selection: Selection) -> Place | None:
        """Where the selected token is; None if nothing, or nothing that is here, is selected."""
        name = selection.request_id
        if name is None or (name not in self.requests and self.row_index(name) is None):
            return None
        r = self.row_index(name)
        position = selection.position
        if position is None:
            position = max(0, self.lengths.get(name, 0) - 1)
        table = self.tables.get(name, ())
        logical, offset = divmod(position, self.block_size)
        in_memory = position < self.lengths.get(name, 0) and logical < len(table)
        physical = table[logical] if in_memory else None
        query = key = readers = None
        if r is not None and self.rows[r].num_tokens:
            q_end = int(self.packed.query_start_loc[r + 1])
            row = self.rows[r]
            first = q_end - row.num_tokens  # the row's first token that is no padding
            if row.start <= position < row.start + row.num_tokens:
                query = first + position - row.start
            if position < int(self.packed.seq_lens[r]):
                key = int(self.key_start[r]) + position
                readers = (first + max(0, position - row.start), q_end - 1)
        return Place(
            request_id=name,
            position=position,
            text=self.text(name, position),
            logical=logical,
            offset=offset,
            physical=physical,
            slot=None if physical is None else physical * self.block_size + offset,
            query=query,
            key=key,
            readers=readers,
        )

    def position_of(self, block_id: int, offset: int, prefer: str | None) -> tuple[str, int] | None:
        """Whose token lies in a block, the preferred request's if it is one of them."""
        names = self.owners.get(block_id, ())
        if not names:
            return None
        name = prefer if prefer in names else names[0]
        assert name is not None
        position = self.tables[name].index(block_id) * self.block_size + offset
        last = self.lengths.get(name, 0) - 1
        return name, max(0, min(position, last))


class Snapshots:
    """Makes snapshots and keeps the latest, because a step back costs the way from the last keyframe."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()
        self._prompts: OrderedDict[tuple[str, int], Sequence[str]] = OrderedDict()

    def at(self, index: int) -> Snapshot:
        """The snapshot of a step. Raises IndexError if there is no such step, TraceError if it is broken."""
        found = self._kept.get(index)
        if found is None:
            found = self._kept[index] = self._make(index)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(index)
        return found

    def behind(self, index: int) -> Iterator[None]:
        """Make the snapshots before a step, a bit at each `next`, so that going on backwards costs nothing.

        They are made in their own order: each is then one line after the one before.
        """
        if all(i in self._kept for i in range(max(0, index - BEHIND // 2), index)):
            return
        first = max(0, index - BEHIND)
        self._source.state(max(0, first - 1))
        for i in range(first, index):
            yield
            self.at(i)

    def _make(self, index: int) -> Snapshot:
        source = self._source
        before = source.state(index - 1) if index > 0 else None
        state, record = source.state(index), source[index]
        rows = record.rows
        packed = pack(rows, source.block_size, pad=record.pad)
        requests = {**(before.requests if before else {}), **state.requests}
        tables, lengths = self._tables(record, rows, state, before)
        owners: dict[int, tuple[str, ...]] = {}
        for name, table in tables.items():
            for block_id in table:
                owners[block_id] = (*owners.get(block_id, ()), name)
        counts = np.diff(packed.query_start_loc)
        return Snapshot(
            index=index,
            step=record.step,
            record=record,
            state=state,
            requests=requests,
            rows=rows,
            packed=packed,
            row_of=np.repeat(np.arange(len(rows)), counts),
            key_start=np.concatenate([[0], np.cumsum(packed.seq_lens, dtype=np.int64)]),
            tables=tables,
            lengths=lengths,
            owners=owners,
            fresh={b: name for name, ids in record.blocks_allocated.items() for b in ids},
            freed={b: name for name, ids in record.blocks_freed.items() for b in ids},
            block_size=source.block_size,
            num_blocks=source.num_blocks,
            prompts=self._prompts_of(record, rows, requests, before),
        )

    @staticmethod
    def _tables(
        record: StepRecord, rows: Sequence[Row], state: PoolState, before: PoolState | None
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
        """Block tables and lengths in the step: of those that run, and of those that only hold theirs."""
        tables: dict[str, tuple[int, ...]] = {}
        lengths: dict[str, int] = {}
        for row in rows:
            if row.num_tokens:
                tables[row.request_id] = tuple(row.block_table)
                lengths[row.request_id] = row.start + row.num_tokens
        for name, request in state.requests.items():
            if name not in tables and request.block_table:
                tables[name] = request.block_table
                lengths[name] = request.num_computed_tokens
        for name in record.returned:  # a static batch held it up to here
            if name not in tables and before is not None and name in before.requests:
                held = before.requests[name]
                tables[name], lengths[name] = held.block_table, held.num_computed_tokens
        return tables, lengths

    def _prompts_of(
        self,
        record: StepRecord,
        rows: Sequence[Row],
        requests: Mapping[str, RequestState],
        before: PoolState | None,
    ) -> dict[str, Sequence[str]]:
        """The texts of the prompts of which this step computes a part; read once and kept."""
        arrived = {new.request_id: new for new in record.new_requests}
        prompts: dict[str, Sequence[str]] = {}
        for row in rows:
            name, request = row.request_id, requests.get(row.request_id)
            new = arrived.get(name)
            if new is not None and new.texts:
                prompts[name] = new.texts
            elif request is not None and row.start < request.num_prompt_tokens and row.num_tokens:
                key = (name, request.num_prompt_tokens)
                if key not in self._prompts or row.start == 0:
                    self._prompts[key] = request.texts[: request.num_prompt_tokens]
                    if len(self._prompts) > KEPT:
                        self._prompts.popitem(last=False)
                prompts[name] = self._prompts[key]
            elif request is None and before is not None and row.num_tokens:  # it ran to its end at once
                queue = before.waiting[:LOOKED_THROUGH]
                prompts[name] = next((r.texts for r in queue if r.request_id == name), ())
        return prompts
