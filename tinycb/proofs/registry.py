"""All theorems, by what they are about. Each kind is loaded when asked for: schedulers need no torch.

Next: `replay.py` for counterexamples in files, and the command in `tinycb/commands/check.py`.
"""

from __future__ import annotations

from tinycb.proofs.theorem import Theorem

__all__ = ["KINDS", "find_theorem", "theorems_about"]

KINDS = {
    "mask": "mask_attention(q, k, v, mask, scale)",
    "causal_mask": "causal_mask(cu_seqlens_q, cu_seqlens_k)",
    "varlen": "varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, scale)",
    "paged": "paged_attention(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale)",
    "write_kv": "write_kv(k, v, k_cache, v_cache, slot_mapping)",
    "scheduler": "a Scheduler class, or the name of a policy",
    "chunked": "the same, of a scheduler with a token budget",
    "engine": "a function that makes an engine",
}


def theorems_about(kind: str, *, exact: bool = False) -> tuple[Theorem, ...]:
    """The theorems about a kind of subject.

    Args:
        kind: one of KINDS, which says how a subject is called.
        exact: of attention, ask for equal bits where others may differ by rounding; each statement says so.

    Raises:
        ValueError: no such kind.
    """
    if kind in ("mask", "varlen", "paged"):
        from tinycb.proofs.attention import attention_theorems

        return attention_theorems(kind, exact)
    if kind == "causal_mask":
        from tinycb.proofs.mask_definition import causal_mask_theorems

        return causal_mask_theorems()
    if kind == "write_kv":
        from tinycb.proofs.cache_write import write_kv_theorems

        return write_kv_theorems()
    if kind in ("scheduler", "chunked"):
        from tinycb.proofs.serving import CHUNKED, SCHEDULER

        return SCHEDULER if kind == "scheduler" else CHUNKED
    if kind == "engine":
        from tinycb.proofs.engine_theorems import ENGINE

        return ENGINE
    raise ValueError(f"there are no theorems about {kind!r}; there are some about {', '.join(KINDS)}")


def find_theorem(kind: str, name: str, *, exact: bool = False) -> Theorem:
    """The theorem of a kind with this name. Raises ValueError, with the names there are, if it is none."""
    theorems = theorems_about(kind, exact=exact)
    for theorem in theorems:
        if theorem.name == name:
            return theorem
    names = ", ".join(theorem.name for theorem in theorems)
    raise ValueError(f"there is no theorem {name!r} about {kind}; there are {names}")
