"""Questions whose answer is requests: who runs, is admitted, preempted or done; and why somebody waits.

Next: `quiz_kinds.py`.
"""

from __future__ import annotations

from tinycb.scheduling.decisions import Reason
from tinycb.tracing.quiz_moment import Moment
from tinycb.tracing.quiz_question import Question, ask, who

__all__ = ["admitted", "finished", "new_blocks", "preempted", "runs", "samples", "stopped"]

_LENGTHS = (Reason.MAX_TOKENS, Reason.MAX_MODEL_LEN, Reason.POOL_END)


def runs(moment: Moment) -> Question | None:
    """Where it is not simply everybody who ran."""
    record, before = moment.record, frozenset(moment.running)
    right = frozenset(record.scheduled)
    if right == before or not right:
        return None
    head = [waiter.request_id for waiter in moment.queue]
    wrong = [before, before | {*head[:1]}, before | {*head[:2]}, right - {*list(record.scheduled)[-1:]}]
    wrong += [before - {*moment.running[-1:]}, frozenset(record.running), frozenset(head[:1])]
    text = "Who runs in this step?"
    return ask(moment, "runs", text, right, filter(None, wrong), who(moment))


def admitted(moment: Moment) -> Question | None:
    queue = [waiter.request_id for waiter in moment.queue]
    if not queue:
        return None
    right = frozenset(moment.record.admitted)
    wrong = [frozenset(queue[:count]) for count in (len(right) + 1, 0, 1, 2, 3, len(queue))]
    text = "Who is admitted from the queue?"
    about = moment.record.admitted or queue[:1]
    waits = [d.request_id for d in moment.record.decisions if d.action == "wait"]
    return ask(moment, "admitted", text, right, wrong, who(moment), about=[*about, *waits])


def preempted(moment: Moment) -> Question | None:
    record = moment.record
    if not record.preempted:
        return None
    winners = [str(d.numbers["winner"]) for d in record.decisions if "winner" in d.numbers]
    running = moment.running
    wrong = [frozenset({name}) for name in (*winners, *running[:1], *reversed(running))]
    wrong.insert(2, frozenset())
    text = "The blocks do not suffice. Who is preempted?"
    return ask(
        moment, "preempted", text, frozenset(record.preempted), wrong, who(moment), about=record.preempted
    )


def new_blocks(moment: Moment) -> Question | None:
    """Who of those that run fills up its last block."""
    record = moment.record
    right = frozenset(name for name, blocks in record.blocks_allocated.items() if blocks)
    everybody = frozenset(record.scheduled)
    ran = [name for name in right if name in moment.running]
    if not ran or right == everybody:
        return None
    prefill = frozenset(name for name, count in record.scheduled.items() if count > 1)
    wrong = [everybody, frozenset(), everybody - right, prefill, frozenset(record.admitted)]
    wrong += [right | {name} for name in everybody - right] + [right - {name} for name in right]
    held = len(moment.before.requests[ran[0]].block_table)
    end = record.num_computed[ran[0]] + record.scheduled[ran[0]]
    blocks = f"{held} block{'' if held == 1 else 's'}"
    because = f"{ran[0]} holds {blocks} of {moment.block_size}, which have no place for its token {end - 1}"
    text = "Who gets new blocks?"
    return ask(moment, "new blocks", text, right, wrong, who(moment), about=list(right), because=because)


def samples(moment: Moment) -> Question | None:
    """A prompt that is not through yet gets no token."""
    record = moment.record
    right, everybody = frozenset(record.sampled), frozenset(record.scheduled)
    if right == everybody:
        return None
    decodes = frozenset(name for name, count in record.scheduled.items() if count == 1)
    middle = ", ".join(sorted(everybody - right))
    wrong = [everybody, decodes, everybody - right, frozenset(), frozenset(record.admitted)]
    wrong += [right | {name} for name in everybody - right] + [right - {name} for name in right]
    because = f"{middle}: not all known tokens are computed after this step, so nothing is sampled"
    text = "Who gets a token in this step?"
    return ask(moment, "samples", text, right, wrong, who(moment), about=list(everybody), because=because)


def finished(moment: Moment) -> Question | None:
    """Where a limit ends it, which can be foreseen; a stop token cannot."""
    record = moment.record
    ends = [decision for decision in record.decisions if decision.action == "finish"]
    right = frozenset(record.finished)
    foreseen = {decision.request_id for decision in ends if decision.reason in _LENGTHS}
    if not right or foreseen != right:
        return None
    others = [name for name in record.scheduled if name not in right]
    wrong = [frozenset({name}) for name in (*others[:1], *right)]
    wrong += [frozenset(), right | {*others[:1]}, *(frozenset({name}) for name in others[1:])]
    text = "Who is done after this step?"
    return ask(moment, "finished", text, right, wrong, who(moment), about=list(right))


def stopped(moment: Moment) -> Question | None:
    """Why the head of the queue stays there. A wrong answer is one that is not true of this step."""
    record = moment.record
    queue = {waiter.request_id: waiter for waiter in moment.queue}
    decision = next(
        (d for d in record.decisions if d.action == "wait" and d.request_id in queue and d.request_id), None
    )
    if decision is None or decision.request_id in moment.running:
        return None
    name, limit = decision.request_id, moment.max_num_seqs
    texts = {
        Reason.NO_FREE_BLOCKS: "it needs more blocks than are free",
        Reason.BUDGET_SPENT: f"the budget of {moment.budget} tokens is spent",
        Reason.MAX_NUM_SEQS: f"{limit} requests run, and more may not",
        Reason.AFTER_PREEMPTION: "somebody was preempted in this step",
        Reason.BATCH_RUNNING: "the batch that runs has to end first",
    }
    if decision.reason not in texts:
        return None
    most = moment.num_tokens(name) + moment.limits.get(name, 0)
    is_untrue = {
        Reason.NO_FREE_BLOCKS: -(-most // moment.block_size) <= record.num_free_blocks,
        Reason.BUDGET_SPENT: sum(record.scheduled.values()) < moment.budget,
        Reason.MAX_NUM_SEQS: len(record.running) < limit,
        Reason.AFTER_PREEMPTION: not record.preempted,
        Reason.BATCH_RUNNING: moment.batching in ("continuous", "chunked"),
    }
    wrong = [reason for reason, untrue in is_untrue.items() if untrue and reason != decision.reason]
    text = f"{name} is at the head of the queue and is not admitted. Why?"
    return ask(moment, "stopped", text, decision.reason, wrong, texts.get, about=[name])
