"""The plan of the paged Triton kernel, by itself: who looks at what, in which order, and what is merged."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tinycb_kernels.configs import SPLIT_TILES, Launch, Tile
from tinycb_kernels.triton_plan import cut

SMALL = Launch(Tile(4, 2, 1, 4), Tile(8, 4, 1, 12), 1)
SAME = Launch(Tile(4, 2, 1, 4), Tile(4, 2, 1, 4), 1)
LAUNCHES = [SMALL, SAME, Launch(Tile(16, 64, 1, 512), Tile(128, 64, 1, 4096), 8)]
Rows = list[tuple[int, int]]

lengths = st.lists(
    st.tuples(st.one_of(st.integers(0, 3), st.integers(0, 60)), st.integers(0, 90)), max_size=6
)
groups = st.sampled_from([1, 2, 3, 4, 5, 9, 20])
launches = st.sampled_from(LAUNCHES)


def cut_rows(rows: Rows, group: int, launch: Launch) -> tuple[np.ndarray, np.ndarray, int]:
    starts = np.cumsum([0, *(q_len for q_len, _ in rows)])
    return cut(starts, np.array([seq_len for _, seq_len in rows], dtype=np.int64), group, launch)


@given(rows=lengths, group=groups, launch=launches)
@example(rows=[(1, 1300), (3, 3)], group=4, launch=LAUNCHES[2])
def test_every_pair_of_query_head_and_key_is_in_exactly_one_item(
    rows: Rows, group: int, launch: Launch
) -> None:
    items, _, _ = cut_rows(rows, group, launch)
    starts = np.cumsum([0, *(q_len for q_len, _ in rows)])
    longest = max((seq_len for _, seq_len in rows), default=0)
    seen = np.zeros((starts[-1], group, longest), dtype=int)
    asked = np.zeros((starts[-1], group), dtype=int)
    for r, token, queries, head, begin, end, _, is_many in items.tolist():
        tile = launch.many if is_many else launch.few
        q_len, seq_len = rows[r]
        heads = min(group - head, tile.rows)
        assert 0 < queries * heads <= tile.rows
        assert starts[r] <= token
        assert token + queries <= starts[r + 1]
        assert 0 <= begin <= end <= seq_len
        asked[token : token + queries, head : head + heads] += begin == 0
        for t in range(token, token + queries):
            own_end = max(0, seq_len - q_len + t - starts[r] + 1)
            seen[t, head : head + heads, begin : min(end, own_end)] += 1
    assert (asked == 1).all(), "a query head without an item, or with two"
    for r, (q_len, seq_len) in enumerate(rows):
        for i in range(q_len):
            own_end = max(0, seq_len - q_len + i + 1)
            assert (seen[starts[r] + i, :, :own_end] == 1).all()


@given(rows=lengths, group=groups, launch=launches)
def test_the_parts_of_a_token_are_merged_once_each_and_have_rows_of_their_own(
    rows: Rows, group: int, launch: Launch
) -> None:
    items, merges, num_part_rows = cut_rows(rows, group, launch)
    written: dict[int, tuple[int, int]] = {}  # row among the parts → token, first key
    whole = set()
    for _, token, queries, head, begin, _, row, _ in items.tolist():
        for i in range(queries):
            if row < 0:
                whole.add(token + i)
            elif head == 0:
                assert row + i not in written
                written[row + i] = (token + i, begin)
    merged = {}
    for token, row, step, parts in merges.tolist():
        merged[token] = [written.pop(row + part * step) for part in range(parts)]
        assert parts > 1
    assert not written, "a part that nobody merges"
    assert len(merged) == len(merges)
    assert not whole & merged.keys()
    for token, parts in merged.items():
        assert all(owner == token for owner, _ in parts)
        begins = [begin for _, begin in parts]
        assert begins == sorted(set(begins)), "parts are added in the order of their keys"
    assert num_part_rows == sum(parts for *_, parts in merges.tolist())


@given(rows=lengths.filter(bool), group=groups, launch=launches, data=st.data())
def test_a_request_is_cut_the_same_way_in_any_company(
    rows: Rows, group: int, launch: Launch, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(0, len(rows) - 1))
    start = sum(q_len for q_len, _ in rows[:chosen])
    alone, _, _ = cut_rows([rows[chosen]], group, launch)
    items, _, _ = cut_rows(rows, group, launch)
    mine = items[items[:, 0] == chosen]
    for column, shift in ((1, start), (2, 0), (3, 0), (4, 0), (5, 0), (7, 0)):
        assert (mine[:, column] - shift == alone[:, column]).all()
    assert ((mine[:, 6] < 0) == (alone[:, 6] < 0)).all()


@given(rows=lengths, group=groups, launch=launches)
def test_the_longest_items_go_first(rows: Rows, group: int, launch: Launch) -> None:
    items, _, _ = cut_rows(rows, group, launch)
    assert (np.diff(items[:, 5] - items[:, 4]) <= 0).all()


def test_a_decoding_request_is_cut_at_multiples_of_a_part() -> None:
    items, merges, rows = cut_rows([(1, 11), (1, 4), (2, 2)], 2, SMALL)
    assert items[:, [0, 1, 2, 4, 5, 6]].tolist() == [
        [0, 0, 1, 0, 4, 0], [0, 0, 1, 4, 8, 1], [1, 1, 1, 0, 4, -1], [0, 0, 1, 8, 11, 2], [2, 2, 2, 0, 2, -1],
    ]  # fmt: skip
    assert merges.tolist() == [[0, 0, 1, 3]]
    assert rows == 3


def test_a_prompt_of_many_tiles_is_left_whole() -> None:
    tile_queries = SMALL.many.rows
    for tiles, parts in ((SPLIT_TILES, True), (SPLIT_TILES + 1, False)):
        items, merges, _ = cut_rows([(tiles * tile_queries, 500)], 1, SMALL)
        assert bool(len(merges)) == parts
        assert (len(items) == tiles) != parts


@pytest.mark.parametrize("rows", [[], [(0, 5)], [(0, 0), (0, 3)]], ids=str)
def test_nothing_to_do(rows: Rows) -> None:
    items, merges, part_rows = cut_rows(rows, 3, SMALL)
    assert (items.shape, merges.shape, part_rows) == ((0, 8), (0, 4), 0)


def test_one_tile_for_all_has_no_second() -> None:
    items, _, _ = cut_rows([(1, 9), (40, 40)], 1, SAME)
    assert not items[:, 7].any()
