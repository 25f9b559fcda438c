"""Why vLLM did what it did, where that follows from what was seen; `not_stated` where it does not.

The reasons and their numbers are those that `tinycb.scheduling` and `tinycb.ending` give for the same
choice. Nothing is guessed: a request that waits though blocks, budget and places were there is handled so
for a reason that is not stated. Next: `transcript.py`.
"""

from __future__ import annotations

from typing import Any

from tinycb.adapters.events import Notes, Preemption, Rules
from tinycb.adapters.holdings import Holdings, Live
from tinycb.scheduling.decisions import Decision, Reason

__all__ = ["Numbers", "ending_of", "why_preempted", "why_the_head_waits"]

Numbers = dict[str, int | str]


def why_preempted(preemption: Preemption, rules: Rules, num_blocks: int) -> Decision:
    """num_blocks: that the victim gives up."""
    name = preemption.request_id
    numbers: Numbers = {"needs": preemption.needs, "free": preemption.free}
    if preemption.winner is None or not rules.plain:
        reason, numbers = Reason.NOT_STATED, {}
    elif preemption.winner == name:
        reason = Reason.PREEMPTED_ITSELF
    else:
        reason = Reason.PREEMPTED_FOR
        numbers["winner"] = preemption.winner
    numbers |= {"blocks": num_blocks, "computed": preemption.num_computed}
    return Decision(name, "preempt", reason, numbers)


def why_the_head_waits(
    notes: Notes, rules: Rules, budget: int, num_running: int, live: Live | None, holdings: Holdings
) -> Decision:
    """Of the head of the queue. budget: what is left of it. live: the head, as it is known here."""
    reason, numbers = Reason.NOT_STATED, Numbers()
    if rules.plain and not notes.head_is_blocked:
        if notes.preemptions:
            reason, numbers = Reason.AFTER_PREEMPTION, {"preempted": len(notes.preemptions)}
        elif budget == 0:
            reason, numbers = Reason.BUDGET_SPENT, {"limit": rules.max_num_batched_tokens}
        elif num_running == rules.max_num_seqs:
            reason = Reason.MAX_NUM_SEQS
            numbers = {"running": num_running, "limit": rules.max_num_seqs}
        else:
            needs = _needs(notes, rules, budget, live, holdings)
            if needs is not None and needs > holdings.num_free:
                reason, numbers = Reason.NO_FREE_BLOCKS, {"needs": needs, "free": holdings.num_free}
    return Decision(notes.head.request_id, "wait", reason, numbers)


def _needs(notes: Notes, rules: Rules, budget: int, live: Live | None, holdings: Holdings) -> int | None:
    """Free blocks that admitting the head would have taken, by the prefix that vLLM itself found for it."""
    if live is None or notes.last_hit is None or notes.last_hit[0] is not notes.head:
        return None
    hits = [block.block_id - 1 for block in notes.last_hit[1].blocks[0]]
    found = len(hits) * rules.block_size
    total = found + min(live.num_tokens - found, budget)
    if rules.reserve_full_prompt:
        total = max(total, live.num_tokens)
    return -(-total // rules.block_size) - len(hits) + holdings.count_idle(hits)


def ending_of(live: Live, answer: Any, max_model_len: int) -> tuple[str, Reason, Numbers]:
    """FinishReason, reason and numbers, of a request whose last token has been counted."""
    kind = str(answer.finish_reason)
    if kind == "stop":
        token = answer.stop_reason
        if isinstance(token, int):
            return kind, Reason.STOP_TOKEN, {"token": token}
        if token is None and answer.new_token_ids:
            return kind, Reason.EOS_TOKEN, {"token": int(answer.new_token_ids[-1])}
    elif kind == "length":
        outputs = live.num_tokens - live.num_prompt_tokens
        if outputs >= live.max_tokens:
            return kind, Reason.MAX_TOKENS, {"output": outputs, "limit": live.max_tokens}
        if live.num_tokens >= max_model_len:
            return kind, Reason.MAX_MODEL_LEN, {"length": live.num_tokens, "limit": max_model_len}
    return ("stop" if kind == "repetition" else kind), Reason.NOT_STATED, {}
