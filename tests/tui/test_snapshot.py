"""A step as the screen has it: the same numbers as the trace, and every address both ways."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

from tests.tracing import harness
from tinycb.tracing import TraceReader
from tinycb.tui.selection import Selection
from tinycb.tui.snapshot import Snapshots
from tinycb_kernels.mask import causal_mask


def check(reader: TraceReader, order: list[int]) -> None:
    snapshots = Snapshots(reader)
    size = reader.block_size
    for index in order:
        snapshot = snapshots.at(index)
        record = reader[index]
        packed = snapshot.packed
        assert snapshot.record == record
        if record.error is not None:
            continue
        assert snapshot.num_blocks - snapshot.num_held == record.num_free_blocks
        for name, table in record.block_tables.items():
            assert list(snapshot.tables[name]) == list(table)
        for t in range(snapshot.num_tokens):
            found = snapshot.token_at(t)
            assert (found is None) == (packed.slot_mapping[t] < 0)
            if found is None:
                continue
            place = snapshot.place(Selection(*found))
            assert place is not None
            assert place.query == t
            assert place.slot == packed.slot_mapping[t]
            assert snapshot.token_id(*found) == packed.token_ids[t]
            assert place.formula(size).endswith(f"= {packed.slot_mapping[t]}")
            assert place.physical is not None
            assert snapshot.position_of(place.physical, place.offset, found[0]) == found
        for s in range(snapshot.num_keys):
            found = snapshot.key_at(s)
            assert found is not None
            place = snapshot.place(Selection(*found))
            assert place is not None
            assert place.key == s
        check_mask(snapshot)


def check_mask(snapshot) -> None:
    """The spans are the mask that the kernels' package builds; who reads a key is a column of it."""
    q = torch.from_numpy(snapshot.packed.query_start_loc)
    k = torch.from_numpy(snapshot.key_start).to(torch.int32)
    mask = causal_mask(q, k)
    for t, (begin, end) in enumerate(snapshot.spans):
        assert mask[t].nonzero().flatten().tolist() == list(range(begin, end))
    for s in range(snapshot.num_keys):
        place = snapshot.place(Selection(*snapshot.key_at(s)))
        readers = [t for t in mask[:, s].nonzero().flatten().tolist() if snapshot.token_at(t)]  # no padding
        assert place.readers == (readers[0], readers[-1])
        assert len(readers) == readers[-1] - readers[0] + 1


@pytest.mark.parametrize("policy", ["chunked", "continuous", "static"])
def test_the_tour(tours: dict[str, Path], policy: str) -> None:
    with TraceReader(tours[policy]) as reader:
        steps = list(range(len(reader)))
        check(reader, steps + steps[::-3])


@settings(max_examples=25)
@given(config=harness.configs, what=harness.ops)
def test_any_run(tmp_path_factory: pytest.TempPathFactory, config, what) -> None:
    path = tmp_path_factory.mktemp("run") / "t"
    harness.run(path, config, what)
    with TraceReader(path) as reader:
        check(reader, list(range(len(reader)))[::-1])


def test_shared_and_cached_blocks(tour: Path) -> None:
    with TraceReader(tour) as reader:
        snapshots = Snapshots(reader)
        step = next(i for i, record in enumerate(reader) if record.prefix_hits)
        snapshot = snapshots.at(step)
        name = next(iter(reader[step].prefix_hits))
        shared = [b for b, owners in snapshot.owners.items() if len(owners) == 2]
        assert len(shared) * reader.block_size == reader[step].prefix_hits[name]
        for owner in snapshot.owners[shared[0]]:
            assert snapshot.position_of(shared[0], 1, owner) == (owner, 1)
        assert snapshot.state.cached - snapshot.owners.keys()


def test_going_back_is_prepared_for(tour: Path) -> None:
    with TraceReader(tour) as reader:
        snapshots = Snapshots(reader)
        for _ in snapshots.behind(20):
            pass
        reader.close()  # nothing is left to read
        assert [snapshots.at(i).index for i in range(19, 3, -1)] == list(range(19, 3, -1))
        assert list(snapshots.behind(19)) == []
