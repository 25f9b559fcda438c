"""The examples: drawn the same every time, at the edges often enough, and laid out as they claim to be.

And the oracle against torch's own attention, since nothing else here would notice a fault in it.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycb.proofs import (
    RaggedBatch,
    Scope,
    attend_alone,
    cache_writes,
    ragged_batches,
    theorems_about,
)
from tinycb.proofs.batch_table import batches_of
from tinycb.proofs.draw import arguments, definition_of_mask, draw, owners, slots_of
from tinycb.proofs.encoding import decode, encode
from tinycb.proofs.strategies import KVLayout

EXAMPLES = settings(max_examples=60, derandomize=True)
BATCHES = st.one_of(ragged_batches(), ragged_batches(paged=True), ragged_batches(Scope(cost=1), paged=True))


@EXAMPLES
@given(BATCHES)
def test_batches_have_a_query_and_keep_within_the_scope(batch):
    assert batch.num_queries >= 1
    assert batch.num_queries <= 200
    assert (batch.heads, batch.kv_heads) in Scope().heads
    assert batch.heads % batch.kv_heads == 0
    assert max(seq_len for _, seq_len in batch.rows) <= 150


@EXAMPLES
@given(ragged_batches(paged=True, max_keys=50))
def test_max_keys_is_of_all_requests_together(batch):
    assert batch.num_keys <= 50


@pytest.mark.parametrize("theorem", theorems_about("paged")[:3] + theorems_about("varlen")[1:2], ids=str)
def test_examples_are_ragged_batches_at_the_edges(theorem):
    row = batches_of(theorem)
    assert row.examples == theorem.max_examples
    assert row.requests >= 2
    assert row.queries >= 20
    assert row.edge >= 50
    assert row.mixed >= 25
    assert row.blind >= 20
    assert row.idle >= 10
    assert row.odd_group >= 10
    if theorem.about == "paged":
        assert row.shared >= 10
        assert row.full >= 10


@EXAMPLES
@given(ragged_batches(paged=True))
def test_every_slot_is_the_owners_or_nans(batch):
    drawn, again = draw(batch), draw(batch)
    tensors, same = arguments("paged", drawn), arguments("paged", again)
    for one, other in zip(tensors.values(), same.values(), strict=True):
        assert torch.equal(one.nan_to_num(9), other.nan_to_num(9))
    cache = tensors["k_cache"].flatten(0, 1)  # (slots, KH, D)
    owned = owners(drawn)
    for slot in range(len(cache)):
        if slot not in owned:
            assert cache[slot].isnan().all()
        for r, position in owned.get(slot, []):
            assert torch.equal(cache[slot], drawn.requests[r].k[position])
    table, layout = tensors["block_table"], batch.layout
    for r, (_, seq_len) in enumerate(batch.rows):
        used = -(-seq_len // layout.block_size)
        assert (table[r, used:] == -1).all()
        assert ((table[r, :used] >= 0) & (table[r, :used] < drawn.num_blocks)).all()
        assert len(set(slots_of(drawn, r))) == seq_len
    assert drawn.num_blocks == max(1, len({b for t in drawn.tables for b in t}) + layout.spare_blocks)


def test_shared_blocks_are_one_block_with_one_content():
    batch = RaggedBatch(((1, 9), (2, 7), (1, 3)), layout=KVLayout(block_size=4, shared_blocks=2, shuffle=5))
    drawn = draw(batch)
    assert drawn.tables[0][0] == drawn.tables[1][0]
    assert set(drawn.tables[0][1:]).isdisjoint(drawn.tables[1][1:])
    assert set(drawn.tables[2]).isdisjoint(drawn.tables[0])
    assert torch.equal(drawn.requests[0].k[:4], drawn.requests[1].k[:4])
    assert not torch.equal(drawn.requests[0].k[4:7], drawn.requests[1].k[4:7])


def test_nans_surround_every_tensor():
    tensors = arguments("varlen", draw(RaggedBatch(((2, 3),))))
    for name in ("q", "k", "v"):
        tensor = tensors[name]
        assert tensor.is_contiguous()
        row = tensor.stride(0)
        memory = tensor.as_strided((tensor.untyped_storage().nbytes() // 4,), (1,), 0)
        assert memory[:row].isnan().all()
        assert memory[-row:].isnan().all()


@EXAMPLES
@given(cache_writes())
def test_writes_have_a_slot_of_their_own(write):
    kept = [slot for slot in write.slots if slot >= 0]
    assert len(set(kept)) == len(kept)
    assert all(slot < write.num_blocks * write.block_size for slot in kept)


@pytest.mark.parametrize(
    "kind", ["mask", "varlen", "paged", "write_kv", "causal_mask", "scheduler", "engine"]
)
def test_examples_survive_json(kind):
    for theorem in theorems_about(kind)[:12]:

        def check(subject, example):
            assert decode(json.loads(json.dumps(encode(example)))) == example

        replace(theorem, check=check).prove(None, max_examples=5)


def test_what_is_no_example_is_a_clear_error():
    with pytest.raises(ValueError, match="not an example: KeyError 'Nonsense'"):
        decode({"type": "Nonsense"})
    with pytest.raises(ValueError, match="not an example: TypeError"):
        decode({"type": "KVLayout", "colour": 3})


@pytest.mark.parametrize(("q_len", "seq_len"), [(1, 1), (1, 9), (4, 4), (3, 8)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (6, 2)])
def test_the_oracle_is_torchs_attention(q_len, seq_len, heads, kv_heads):
    random = np.random.default_rng(0)
    q = random.standard_normal((q_len, heads, 16))
    k, v = random.standard_normal((2, seq_len, kv_heads, 16))
    got = attend_alone(q, k, v, 0.3)
    mask = definition_of_mask(((q_len, seq_len),))
    want = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(x).transpose(0, 1) for x in (q, k, v)), attn_mask=mask, scale=0.3, enable_gqa=True
    )
    np.testing.assert_allclose(got, want.transpose(0, 1).numpy(), atol=1e-12)


def test_the_oracle_gives_0_where_nothing_is_seen():
    rows = np.ones((3, 2, 16)), np.ones((1, 1, 16)), np.ones((1, 1, 16))
    assert attend_alone(*rows, 1.0)[:, 0, 0].tolist() == [0, 0, 1]
    assert attend_alone(rows[0], rows[1][:0], rows[2][:0], 1.0).sum() == 0


def test_the_definition_of_the_mask_as_it_is_drawn_in_causal_masks_docstring():
    assert definition_of_mask(((3, 3), (1, 4), (2, 3))).int().tolist() == [
        [int(c == "#") for c in line]
        for line in ("#.........", "##........", "###.......", "...####...", ".......##.", ".......###")
    ]
