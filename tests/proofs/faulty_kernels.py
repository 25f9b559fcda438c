"""Kernels to be found out: a short paged attention and cache write, each with a single fault to choose.

    paged.<fault>(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale)
    write.<fault>(k, v, k_cache, v_cache, slot_mapping)

`paged.right` and `write.right` have none. Used as subjects of `tinycb check`, so they are found by name.
"""

import ctypes
import os
import signal
import time
from functools import partial
from types import SimpleNamespace

import torch

import tinycb_kernels

PAGED_FAULTS = {
    # fault: the theorem that names it best
    "sees_the_next_key": "a_query_sees_exactly_its_own_past",
    "aligns_top_left": "a_query_sees_exactly_its_own_past",
    "takes_request_0s_table": "a_query_sees_exactly_its_own_past",
    "drops_the_last_block": "a_query_sees_exactly_its_own_past",
    "interleaves_heads": "gqa_heads_map_to_their_group",
    "reads_past_the_end": "memory_of_nobody_is_never_read",
    "hides_with_a_finite_number": "huge_scores_are_right",
    "averages_when_blind": "rows_that_see_nothing_are_zero",
    "scales_q_in_place": "inputs_are_left_alone",
    "assumes_contiguous": "any_strides_give_the_same",
    "wraps_at_32_bits": "offsets_are_64_bit",
    "ignores_the_scale": "agrees_with_one_request_alone",
    "mixes_neighbours_in": "neighbours_change_no_bit",
}


def paged_attention(fault, q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale):
    size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    if fault == "prints":
        print("noise on stdout", flush=True)
        os.write(1, b"more noise\n")
    if fault == "raises" and len(seq_lens) > 1:
        raise RuntimeError("no more than one request, please")
    if fault == "hangs" and len(seq_lens) > 1:
        time.sleep(1000)
    if fault == "crashes" and len(seq_lens) > 1:
        ctypes.string_at(0)
    if fault == "exits" and len(seq_lens) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "returns_wrong_shape":
        return q.flatten(1)
    if fault == "returns_nothing":
        return None
    if fault == "ignores_the_scale":
        scale = q.shape[2] ** -0.5
    if fault == "scales_q_in_place":
        q *= scale
        scale = 1.0
    if fault == "assumes_contiguous":
        k_cache, v_cache = (
            torch.as_strided(cache, cache.shape, torch.empty(cache.shape, device="meta").stride())
            for cache in (k_cache, v_cache)
        )
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    starts = query_start_loc.tolist()
    for r, seq_len in enumerate(seq_lens.tolist()):
        q_len = starts[r + 1] - starts[r]
        table = block_table[0 if fault == "takes_request_0s_table" else r]
        blocks = -(-seq_len // size) - (fault == "drops_the_last_block" and seq_len % size == 0)
        physical = table[: max(0, blocks)].long().clamp(min=0)
        if fault == "wraps_at_32_bits":
            stride = k_cache.stride(0)
            physical = ((physical * stride + 2**31) % 2**32 - 2**31) // stride
        keys, values = (cache[physical].flatten(0, 1).float() for cache in (k_cache, v_cache))
        if fault != "reads_past_the_end":
            keys, values = keys[:seq_len], values[:seq_len]
        query, key = torch.arange(q_len)[:, None], torch.arange(len(keys))
        last = query if fault == "aligns_top_left" else seq_len - q_len + query
        last = last + (fault == "sees_the_next_key")
        hidden = (key > last) | (key >= seq_len)  # (q_len, keys)
        blind = hidden.all(dim=1)
        mine = q[starts[r] : starts[r + 1]].float()
        for head in range(q.shape[1]) if len(keys) else ():
            kv_head = head % kv_heads if fault == "interleaves_heads" else head // group
            scores = mine[:, head] @ keys[:, kv_head].T * scale
            scores = scores.masked_fill(hidden, -1e4 if fault == "hides_with_a_finite_number" else -torch.inf)
            result = scores.masked_fill(blind[:, None], 0).softmax(1) @ values[:, kv_head]
            if fault != "averages_when_blind":
                result[blind] = 0
            if fault == "mixes_neighbours_in":
                result = result + 0 * q.float().sum()
            out[starts[r] : starts[r + 1], head] = result.to(q.dtype)
    return out


WRITE_FAULTS = {
    "writes_minus_one": "minus_one_slots_are_skipped",
    "swaps_block_and_offset": "writes_land_in_their_slots_only",
    "forgets_the_values": "writes_land_in_their_slots_only",
    "rounds_the_keys": "writes_land_in_their_slots_only",
    "clears_the_block": "writes_land_in_their_slots_only",
    "sorts_the_slots": "inputs_are_left_alone",
    "assumes_contiguous": "any_strides_give_the_same_beside",
}


def write_kv(fault, k, v, k_cache, v_cache, slot_mapping):
    num_blocks, size = k_cache.shape[:2]
    if fault == "sorts_the_slots":
        order = slot_mapping.argsort()
        k, v = k[order], v[order]
        slot_mapping.copy_(slot_mapping[order])
    for tokens, cache in ((k, k_cache), (v, v_cache)):
        if fault == "forgets_the_values" and cache is v_cache:
            continue
        if fault == "assumes_contiguous":
            cache = torch.as_strided(cache, cache.shape, torch.empty(cache.shape, device="meta").stride())
        for t, slot in enumerate(slot_mapping.tolist()):
            if slot < 0 and fault != "writes_minus_one":
                continue
            slot = max(slot, -1) % (num_blocks * size)
            block, offset = slot // size, slot % size
            if fault == "swaps_block_and_offset":
                block, offset = slot % num_blocks, slot // num_blocks
            if fault == "clears_the_block" and offset == 0:
                cache[block, 1:] = 0
            cache[block, offset] = (tokens[t] + 0) if fault == "rounds_the_keys" else tokens[t]


MISBEHAVIOURS = ("prints", "raises", "hangs", "crashes", "exits", "returns_wrong_shape", "returns_nothing")

paged = SimpleNamespace(
    **{name: partial(paged_attention, name) for name in (*PAGED_FAULTS, *MISBEHAVIOURS, "right")}
)
write = SimpleNamespace(**{name: partial(write_kv, name) for name in (*WRITE_FAULTS, "right")})
not_callable = 3

# tinycb's own, by backend: subjects have to be found by a name.
ours = SimpleNamespace(
    **{
        f"{backend}_{kind}": partial(kernel, backend=backend)
        for kind, kernel in (
            ("varlen", tinycb_kernels.varlen_attention),
            ("paged", tinycb_kernels.paged_attention),
            ("write_kv", tinycb_kernels.write_kv),
        )
        for backend in ("numba", "torch", "triton")
    }
)
