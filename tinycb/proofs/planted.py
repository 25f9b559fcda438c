"""Deliberate faults, switched on by name: the proof that the proofs would notice.

    with planted("top_left_causal"):
        theorem.prove(partial(varlen_attention, backend="triton"))      # raises Counterexample

Each fault rewrites one line of the shipped source. The line must occur in its module exactly once, so a fault
cannot drift away from the code: when the code changes, planting fails until the fault is looked at again.
Off, it costs nothing, for nothing in the shipped code knows of it.

How a line is rewritten is in `planting.py`. Which theorem finds which fault, with what example, is in
`fault_table.py`, and `tinycb check --planted` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tinycb.proofs.planting import compiled_lines, is_compiled, swapped_lines

__all__ = ["FAULTS", "Fault", "active", "planted"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong line in place of a right one.

    name: to plant it by. covers: the kind of mistake. module: where the line is. line, replacement: without
    indentation. theorem: the one that is to find it, about the subject `about`.
    """

    name: str
    covers: str
    module: str
    line: str
    replacement: str
    theorem: str
    about: str

    @property
    def backend(self) -> str:
        """Of the kernels: "triton" or "numba", and nothing where the fault is in neither."""
        return next((name for name in ("triton", "numba") if f".{name}_" in self.module), "")


KERNELS, SCHEDULING = "tinycb_kernels.", "tinycb.scheduling."

# fmt: off
FAULTS: dict[str, Fault] = {fault.name: fault for fault in (
    # ── Triton kernels ─────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "top_left_causal", "mask alignment", KERNELS + "triton_varlen",
        "kv_end = kv_len - q_len + first + query + 1  # (ROWS,): positions, counted from the request's "
        "first key",
        "kv_end = first + query + 1",
        "a_query_sees_exactly_its_own_past", "varlen",
    ),
    Fault(
        "no_request_boundary", "request boundary", KERNELS + "triton_varlen",
        "kv_begin = tl.load(kv_starts + r)",
        "kv_begin = tl.load(kv_starts)",
        "a_query_sees_exactly_its_own_past", "varlen",
    ),
    Fault(
        "values_past_the_end", "NaN past the end", KERNELS + "triton_tile",
        "exists = pos < end if MASKED else tl.full([KEYS], True, tl.int1)  # (KEYS,)",
        "exists = pos < (end + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE",
        "memory_of_nobody_is_never_read", "paged",
    ),
    Fault(
        "interleaved_heads", "GQA mapping", KERNELS + "triton_paged",
        "head = kv_head * GROUP + head_in_group  # (ROWS,)",
        "head = head_in_group * (HEADS // GROUP) + kv_head",
        "gqa_heads_map_to_their_group", "paged",
    ),
    Fault(
        "block_offsets_in_32_bit", "32-bit offsets", KERNELS + "triton_tile",
        "physical = tl.load(table + logical * table_column, mask=exists, other=0).to(tl.int64)",
        "physical = tl.load(table + logical * table_column, mask=exists, other=0); offset = pos % BLOCK_SIZE",
        "offsets_are_64_bit", "paged",
    ),
    Fault(
        "all_rows_see_whole_tiles", "mask alignment", KERNELS + "triton_tile",
        "seen_by_all = tl.minimum(tl.min(kv_end, axis=0), end)",
        "seen_by_all = end",
        "agrees_with_one_request_alone", "paged",
    ),
    Fault(
        "last_part_dropped", "work items", KERNELS + "triton_plan",
        "num_parts = np.maximum(-(-keys // part_keys), 1)  # a tile that sees nothing has one part, to "
        "write 0",
        "num_parts = np.maximum(keys // part_keys, 1)",
        "agrees_with_one_request_alone", "paged",
    ),
    Fault(
        "parts_share_a_key", "work items", KERNELS + "triton_plan",
        "begin = part * part_keys[tile]",
        "begin = np.maximum(part * part_keys[tile] - 1, 0)",
        "agrees_with_one_request_alone", "paged",
    ),
    Fault(
        "merge_without_the_largest", "merge", KERNELS + "triton_merge",
        "share = tl.exp2((part_largest - base) * factor)  # (PARTS,)",
        "share = tl.where(exists, 1.0, 0.0)",
        "agrees_with_one_request_alone", "paged",
    ),
    Fault(
        "padding_writes_slot_0", "-1 slots", KERNELS + "triton_kv_write",
        "slot = tl.load(slot_mapping + token, mask=token < tokens, other=-1)  # (TOKENS,)",
        "slot = tl.where(token < tokens, tl.maximum(tl.load(slot_mapping + token, mask=token "
        "< tokens, other=-1), 0), -1)",
        "minus_one_slots_are_skipped", "write_kv",
    ),
    Fault(
        "finite_minus_infinity", "softmax", KERNELS + "triton_tile",
        'scores = tl.where(pos[None, :] < kv_end[:, None], scores, float("-inf"))',
        "scores = tl.where(pos[None, :] < kv_end[:, None], scores, -50000.0)",
        "huge_scores_are_right", "varlen",
    ),
    # ── Numba loops ────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "packed_keys_from_the_start", "offsets", KERNELS + "numba_attention",
        "position = np.int64(kv_starts[r]) + start",
        "position = np.int64(start)",
        "a_query_sees_exactly_its_own_past", "varlen",
    ),
    Fault(
        "last_block_forgotten", "last block", KERNELS + "numba_attention",
        "block = np.int64(block_table[r, logical])",
        "block = np.int64(block_table[r, min(logical, max(1, kv_end // block_size) - 1)])",
        "a_query_sees_exactly_its_own_past", "paged",
    ),
    Fault(
        "offset_counts_from_the_tile", "offsets", KERNELS + "numba_attention",
        "offset = position % block_size",
        "offset = np.int64(0)",
        "the_block_size_changes_nothing", "paged",
    ),
    Fault(
        "queries_of_another_group", "GQA mapping", KERNELS + "numba_attention",
        "load_queries(queries, q, scale, first_token, rows, kv_head * group, group)",
        "load_queries(queries, q, scale, first_token, rows, kv_head, group)",
        "agrees_with_one_request_alone", "paged",
    ),
    Fault(
        "padding_ends_the_write", "-1 slots", KERNELS + "numba_kv_write",
        "continue",
        "break",
        "writes_land_in_their_slots_only", "write_kv",
    ),
    # ── plain torch and numpy ──────────────────────────────────────────────────────────────────────────────
    Fault(
        "mask_without_requests", "request boundary", KERNELS + "mask",
        "return same_request & (index_in_k <= last_visible[:, None])",
        "return index_in_k <= last_visible[:, None]",
        "the_mask_is_its_definition", "causal_mask",
    ),
    Fault(
        "chunk_positions_start_at_0", "offsets", "tinycb.packing",
        "positions = starts[row_of] + nums[row_of] - 1 - from_end  # (T,)",
        "positions = nums[row_of] - 1 - from_end  # (T,)",
        "same_tokens_as_alone_on_a_model", "engine",
    ),
    Fault(
        "padded_row_sees_its_padding", "mask alignment", "tinycb.packing",
        "seq_lens = np.where(nums > 0, starts + nums, 0).astype(np.int32)  # (R,)",
        "seq_lens = np.where(nums > 0, starts + np.array(lengths), 0).astype(np.int32)  # (R,)",
        "same_tokens_as_alone_on_a_model", "engine",
    ),
    Fault(
        "single_row_by_another_route", "batch invariance", "tinycb.model.linear",
        "before = None if norm is None else (norm.weight.float(), norm.eps)",
        "x, before = (norm(x), None) if norm and len(x) == 1 else (x, norm and (norm.weight.float(), "
        "norm.eps))",
        "same_bits_as_alone", "engine",
    ),
    # ── scheduling ─────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "hash_before_compute", "hash before compute", SCHEDULING + "scheduler",
        "output.blocks_cached += self.pool.cache_full_blocks(request, start, end)",
        "output.blocks_cached += self.pool.cache_full_blocks(request, start, "
        "min(request.num_tokens, len(request.block_table) * size))",
        "offers_only_what_was_computed", "scheduler",
    ),
    Fault(
        "hash_without_compare", "hash without compare", SCHEDULING + "block_pool",
        "if block.prefix is not None and block.prefix.same_as(prefix):",
        "if block.prefix is not None:",
        "reads_its_own_past", "scheduler",
    ),
    Fault(
        "double_free", "double free", SCHEDULING + "scheduler",
        "output.blocks_freed[request.request_id] = self._free(request)",
        "output.blocks_freed[request.request_id] = self.pool.free(request.block_table) + self._free(request)",
        "pool_is_whole", "scheduler",
    ),
    Fault(
        "abort_keeps_its_blocks", "missing free on abort", SCHEDULING + "scheduler",
        "return self._free(request)",
        "return self._free(request) if request.num_computed_tokens == 0 else []",
        "pool_is_whole", "scheduler",
    ),
    Fault(
        "recompute_forgets_the_output", "recompute that forgets the output", SCHEDULING + "scheduler",
        "victim.num_computed_tokens = 0",
        "victim.num_computed_tokens = 0; del victim.token_ids[victim.num_prompt_tokens :]",
        "same_tokens_as_alone", "scheduler",
    ),
    Fault(
        "hit_covers_the_last_token", "hit that covers the last token", SCHEDULING + "block_pool",
        "for index in range((request.num_tokens - 1) // self.block_size):",
        "for index in range(request.num_tokens // self.block_size):",
        "somebody_advances", "scheduler",
    ),
    Fault(
        "admission_with_the_whole_budget", "budget overrun", SCHEDULING + "chunked",
        "if not self.admit(head, budget, output):",
        "if not self.admit(head, limit, output):",
        "within_its_budget", "chunked",
    ),
    Fault(
        "stale_block_table", "stale block table", SCHEDULING + "scheduler",
        "output.block_tables[name] = request.block_table",
        "output.block_tables[name] = request.block_table[: "
        "self._blocks_for(start) or len(request.block_table)]",
        "slots_are_private", "scheduler",
    ),
    Fault(
        "undo_keeps_the_cache", "hash before compute", SCHEDULING + "scheduler",
        "for block_id in reversed(output.blocks_cached):",
        "for block_id in ():",
        "failed_forward_is_undone", "scheduler",
    ),
    Fault(
        "one_block_too_many", "last block", SCHEDULING + "scheduler",
        "return -(-num_tokens // self.block_size)",
        "return num_tokens // self.block_size + 1",
        "no_needless_block", "chunked",
    ),
    Fault(
        "preempted_to_the_back", "starvation", SCHEDULING + "scheduler",
        "self.waiting.appendleft(victim)",
        "self.waiting.append(victim)",
        "first_come_first_served", "chunked",
    ),
)}
# fmt: on

_active: list[str] = []


def active() -> str | None:
    """The name of the fault that is planted now, if one is."""
    return _active[-1] if _active else None


@contextmanager
def planted(name: str) -> Iterator[Fault]:
    """Plant a fault until the block ends. Functions that were imported before carry it too.

    Raises KeyError for an unknown name, and RuntimeError if the line is not in the source exactly once, or if
    another fault is planted already.
    """
    fault = FAULTS[name]
    if _active:
        raise RuntimeError(f"{_active[-1]} is planted already, and one fault at a time is enough")
    plant = compiled_lines if is_compiled(fault.module) else swapped_lines
    with plant(fault.module, fault.line, fault.replacement):
        _active.append(name)
        try:
            yield fault
        finally:
            _active.remove(name)
