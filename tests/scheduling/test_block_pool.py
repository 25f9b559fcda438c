"""The block pool: the order of its free list, and what may be shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycb.request import Request
from tinycb.scheduling import BlockPool, InvariantError, block_pool, check_pool


def request_with(pool: BlockPool, name: str, tokens: list[int], *, cache: bool = True) -> Request:
    """A request whose tokens are all computed, as an engine would leave it."""
    request = Request(name, tokens)
    hits = pool.find_prefix(request)
    pool.share(hits)
    request.block_table = hits + pool.allocate(-(-len(tokens) // pool.block_size) - len(hits))
    if cache:
        pool.cache_full_blocks(request, len(hits) * pool.block_size, len(tokens))
    return request


def test_blocks_are_taken_from_the_front_in_order():
    assert BlockPool(5, 4).allocate(3) == [0, 1, 2]


def test_freed_blocks_without_a_prefix_are_reused_first_last_block_first():
    pool = BlockPool(8, 4, prefix_caching=False)
    pool.free(pool.allocate(3))
    assert list(pool.free_list) == [2, 1, 0, 3, 4, 5, 6, 7]


def test_freed_blocks_with_a_prefix_go_to_the_back_tail_first():
    pool = BlockPool(6, 4)
    request = request_with(pool, "a", list(range(10)))  # two full blocks and one partly filled
    pool.free(request.block_table)
    assert list(pool.free_list) == [2, 3, 4, 5, 1, 0]


def test_a_hit_takes_free_blocks_out_of_the_free_list():
    pool = BlockPool(6, 4)
    pool.free(request_with(pool, "a", list(range(10))).block_table)
    again = request_with(pool, "b", list(range(10)))
    assert again.block_table[:2] == [0, 1]
    check_pool(pool, {"b": again.block_table})


@pytest.mark.parametrize("length", [4, 8, 12])
def test_a_hit_never_covers_the_last_token(length):
    pool = BlockPool(8, 4)
    request_with(pool, "a", list(range(length)))
    assert len(pool.find_prefix(Request("b", list(range(length))))) == length // 4 - 1


def test_prefixes_whose_hashes_collide_are_told_apart_by_their_tokens(monkeypatch):
    monkeypatch.setattr(block_pool, "prefix_hash", lambda parent_hash, tokens: 7)
    pool = BlockPool(16, 4)
    first = request_with(pool, "a", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert pool.find_prefix(Request("b", [1, 2, 3, 9, 5, 6, 7, 8, 9])) == []
    # The same tokens in block 1 behind another block 0 are another prefix.
    other = request_with(pool, "c", [4, 3, 2, 1, 5, 6, 7, 8, 9])
    assert pool.find_prefix(Request("d", [1, 2, 3, 4, 5, 6, 7, 8, 0])) == first.block_table[:2]
    assert pool.find_prefix(Request("e", [4, 3, 2, 1, 5, 6, 7, 8, 0])) == other.block_table[:2]
    check_pool(pool, {"a": first.block_table, "c": other.block_table})


def test_a_block_that_is_taken_anew_loses_its_prefix_and_says_so():
    pool = BlockPool(2, 4)
    pool.free(request_with(pool, "a", list(range(8))).block_table)
    assert pool.allocate(1) == [1]
    assert pool.evicted == [1]
    assert pool.find_prefix(Request("b", list(range(9)))) == [0]


def test_the_check_notices_a_lost_block_a_double_free_and_a_wrong_count():
    pool = BlockPool(4, 4)
    table = pool.allocate(2)
    with pytest.raises(InvariantError, match="block 0"):
        check_pool(pool, {"a": table[1:]})
    with pytest.raises(InvariantError, match="block 1"):
        check_pool(pool, {"a": table, "b": [1]})
    pool.free_list[0] = None
    with pytest.raises(InvariantError, match="free is True"):
        check_pool(pool, {"a": table})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 14)), max_size=30), st.booleans())
def test_every_block_is_accounted_for_whatever_comes_and_goes(events, colliding):
    with pytest.MonkeyPatch.context() as patch:
        if colliding:
            patch.setattr(block_pool, "prefix_hash", lambda parent_hash, tokens: len(tokens))
        pool = BlockPool(12, 3)
        live: dict[str, Request] = {}
        for number, (kind, length) in enumerate(events):
            if kind == 0 and live:
                pool.free(live.pop(next(iter(live))).block_table)
            else:
                tokens = [kind] * (length - 1) + [number % 2]
                hits = pool.find_prefix(Request("?", tokens))
                if len(hits) + pool.num_free >= -(-length // 3) + sum(
                    pool.blocks[b].ref_count == 0 for b in hits
                ):
                    live[f"q{number}"] = request_with(pool, f"q{number}", tokens)
            check_pool(pool, {name: request.block_table for name, request in live.items()})
            for request in live.values():
                held = [pool.blocks[b].prefix for b in request.block_table[: request.num_tokens // 3]]
                tokens = [t for prefix in held if prefix is not None for t in prefix.tokens]
                assert tokens == request.token_ids[: len(held) * 3]
