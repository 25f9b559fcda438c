"""The kinds of question, each made from one moment: its right answer is the record's, the others are not.

A kind gives no question where nothing of it happens, or where fewer than two wrong answers are plausible.
Wrong ones come from the state: what it would be without the budget, without the cache, without the limit.

Next: `quiz.py`, which chooses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tinycb.scheduling.decisions import Reason
from tinycb.tracing.quiz_moment import Moment
from tinycb.tracing.records import StepRecord

__all__ = ["KINDS", "Kind", "Question"]

MOST_CHOICES = 4
MOST_NAMES = 6  # in a choice, one by one
MOST_REASONS = 5
Names = frozenset[str]
_LENGTHS = (Reason.MAX_TOKENS, Reason.MAX_MODEL_LEN, Reason.POOL_END)


@dataclass(frozen=True, slots=True)
class Question:
    """What happens in step `index` of the source, whose number is `step`.

    known: lines that say what is known. choices: texts; values: what each stands for, a set of ids, a count,
    a block or the value of a `Reason`. answer: which one is right. reasons: sentences, for afterwards.
    request_id: whom it is about, if it is about one.
    """

    index: int
    step: int
    kind: str
    text: str
    known: tuple[str, ...]
    choices: tuple[str, ...]
    values: tuple[Any, ...]
    answer: int
    reasons: tuple[str, ...]
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """happens: whether a record may have something of it; it is asked of every step. make: the question."""

    happens: Callable[[StepRecord], Any]
    make: Callable[[Moment], Question | None]


def _ask(
    moment: Moment,
    kind: str,
    text: str,
    right: Any,
    wrong: Iterable[Any],
    show: Callable[[Any], str | None],
    *,
    about: Collection[str] = (),
    because: str = "",
) -> Question | None:
    """The question, if it has at least three choices that can be told apart."""
    values = [right]
    for value in wrong:
        if value not in values and len(values) < MOST_CHOICES:
            values.append(value)
    if isinstance(right, int):
        values.sort()
    else:
        random.Random(f"{moment.record.step} {kind}").shuffle(values)
    texts = [show(value) for value in values]
    choices = [text for text in texts if text is not None]
    if len(values) < 3 or len(choices) < len(values) or len(set(choices)) < len(values):
        return None
    return Question(
        index=moment.index,
        step=moment.record.step,
        kind=kind,
        text=text,
        known=tuple(moment.known),
        choices=tuple(choices),
        values=tuple(values),
        answer=values.index(right),
        reasons=_reasons(moment.record, about, because),
        request_id=next(iter(about)) if len(about) == 1 else None,
    )


def _reasons(record: StepRecord, about: Collection[str], because: str) -> tuple[str, ...]:
    """The decisions that have to do with it, as sentences."""
    said = [d.sentence for d in record.decisions if not about or d.request_id in about]
    lines = ([because] if because else []) + (said or [d.sentence for d in record.decisions])
    return tuple(lines[:MOST_REASONS]) or ("every request decodes one token, which is the rule",)


def _who(moment: Moment) -> Callable[[Names], str | None]:
    """Shows a set of requests; None if it cannot be said in a line."""
    order = [*moment.running, *(waiter.request_id for waiter in moment.queue)]
    order = list(dict.fromkeys([*order, *moment.record.scheduled, *moment.record.admitted]))

    def show(names: Names) -> str | None:
        listed = [name for name in order if name in names]
        if len(listed) <= MOST_NAMES:
            return ", ".join(listed) or "nobody"
        missing = [name for name in moment.running if name not in names]
        more = [name for name in listed if name not in moment.running]
        if len(missing) + len(more) > MOST_NAMES:
            return None
        text = f"all {len(moment.running)} that run"
        text += f" but {', '.join(missing)}" if missing else ""
        return text + (f", and {', '.join(more)}" if more else "")

    return show


def _between(low: int, high: int, values: Iterable[int]) -> list[int]:
    return [value for value in values if low <= value <= high]


# ── how many ──────────────────────────────────────────────────────────────────────────────────────────


def _tokens(moment: Moment) -> Question | None:
    """A chunk that the budget cuts, or a prompt of which a part was found in the cache."""
    record = moment.record
    for name, count in record.scheduled.items():
        total = moment.num_tokens(name)
        hit = record.prefix_hits.get(name, 0)
        todo = total - max(moment.num_computed(name), hit)
        if not total or count == 1 == todo or (count == todo and not hit):
            continue
        others = sum(n for other, n in record.scheduled.items() if other != name)
        wrong = [todo, moment.budget, total, moment.budget - len(record.scheduled) + 1]
        wrong += [todo + hit, total - others, 1, count + 1, count - 1]
        wrong = _between(1, max(total, moment.budget), wrong)
        text = f"How many tokens does {name} run?"
        return _ask(moment, "tokens", text, count, wrong, str, about=[name])
    return None


def _hit(moment: Moment) -> Question | None:
    """A prefix in the cache, where it can be said whose it is."""
    record, size = moment.record, moment.block_size
    for name, hit in record.prefix_hits.items():
        tokens = _token_ids(moment, name)
        total = len(tokens)
        request = moment.request(name)
        if request is not None:
            common, whose = total, "It was preempted, and has been computed before."
        else:
            others = [(other, ids) for other, ids in moment.prompts if other != name and ids is not tokens]
            found = [(_common(tokens, ids), other) for other, ids in others]
            common, other = max(found, default=(0, ""))
            whose = f"Its first {common} are those of {other}, which came before."
        if not total or common < hit:
            continue
        wrong = [common, 0, total, total // size * size, hit - size, hit + size, hit + 1, hit - 1]
        text = f"How many of {name}'s {total} tokens are found in the prefix cache? {whose}"
        because = f"only full blocks of {size} are shared, and never the last token"
        return _ask(moment, "hit", text, hit, _between(0, total, wrong), str, about=[name], because=because)
    return None


def _token_ids(moment: Moment, name: str) -> Sequence[int]:
    request = moment.request(name)
    if request is not None:
        return request.token_ids
    return next((ids for other, ids in reversed(moment.prompts) if other == name), ())


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _free(moment: Moment) -> Question | None:
    """The pool after everyone has got blocks."""
    record, before, size = moment.record, len(moment.free), moment.block_size
    right = record.num_free_blocks
    if right == before:
        return None
    naive = before - sum(-(-count // size) for count in record.scheduled.values())
    wrong = [before, naive, before - len(record.scheduled), right + 1, right - 1, right + 2]
    wrong = _between(0, moment.before.num_blocks, wrong)
    taken = sum(len(blocks) for blocks in record.blocks_allocated.values())
    because = f"{before} were free, {taken} are taken"
    freed = sum(len(record.blocks_freed.get(name, ())) for name in record.preempted)
    shared = before + freed - taken - right
    because += f", {freed} given back by preemption" if freed else ""
    because += f", {shared} shared again that nobody held" if shared > 0 else ""
    text = "How many blocks are free once everyone has got theirs?"
    return _ask(moment, "free", text, right, wrong, str, about=list(record.admitted), because=because)


def _padding(moment: Moment) -> Question | None:
    """A static batch."""
    record = moment.record
    if not record.num_padded or not record.scheduled:
        return None
    useful, longest = sum(record.scheduled.values()), max(record.scheduled.values())
    right = useful + record.num_padded
    wrong = [
        useful,
        longest * moment.max_num_seqs,
        longest * len(record.scheduled),
        record.num_padded,
        longest,
    ]
    text = "How many tokens go through the forward, padding and idle slots included?"
    because = f"{useful} of requests and {record.num_padded} of padding: every row is as long as the longest"
    return _ask(moment, "padding", text, right, _between(1, 1 << 40, wrong), str, because=because)


# ── which block ───────────────────────────────────────────────────────────────────────────────────────


def _block(moment: Moment) -> Question | None:
    """One new block: the other choices are held by somebody who runs on, so they cannot be it."""
    record = moment.record
    tables = {name: set(moment.before.requests[name].block_table) for name in moment.running}
    held = set().union(*(tables.get(name, set()) for name in record.scheduled), set())
    for name, blocks in record.blocks_allocated.items():
        if len(blocks) != 1 or blocks[0] in held or name not in record.scheduled:
            continue
        if name in record.prefix_hits:
            continue  # it shares some of those that are held
        wrong = sorted(held, key=lambda block: (abs(block - blocks[0]), block))
        wrong = sorted(tables.get(name, ()), reverse=True)[:1] + wrong
        owners = ", ".join(other for other in record.scheduled if tables.get(other))
        because = f"block {blocks[0]} was free; the others are held by {owners}"
        text = f"Which new block does {name} get?"
        return _ask(moment, "block", text, blocks[0], wrong, "block {}".format, about=[name], because=because)
    return None


# ── who ───────────────────────────────────────────────────────────────────────────────────────────────


def _runs(moment: Moment) -> Question | None:
    """Where it is not simply everybody who ran."""
    record, before = moment.record, frozenset(moment.running)
    right = frozenset(record.scheduled)
    if right == before or not right:
        return None
    head = [waiter.request_id for waiter in moment.queue]
    wrong = [before, before | {*head[:1]}, before | {*head[:2]}, right - {*list(record.scheduled)[-1:]}]
    wrong += [before - {*moment.running[-1:]}, frozenset(record.running), frozenset(head[:1])]
    text = "Who runs in this step?"
    return _ask(moment, "runs", text, right, filter(None, wrong), _who(moment))


def _admitted(moment: Moment) -> Question | None:
    queue = [waiter.request_id for waiter in moment.queue]
    if not queue:
        return None
    right = frozenset(moment.record.admitted)
    wrong = [frozenset(queue[:count]) for count in (len(right) + 1, 0, 1, 2, 3, len(queue))]
    text = "Who is admitted from the queue?"
    about = moment.record.admitted or queue[:1]
    waits = [d.request_id for d in moment.record.decisions if d.action == "wait"]
    return _ask(moment, "admitted", text, right, wrong, _who(moment), about=[*about, *waits])


def _preempted(moment: Moment) -> Question | None:
    record = moment.record
    if not record.preempted:
        return None
    winners = [str(d.numbers["winner"]) for d in record.decisions if "winner" in d.numbers]
    running = moment.running
    wrong = [frozenset({name}) for name in (*winners, *running[:1], *reversed(running))]
    wrong.insert(2, frozenset())
    text = "The blocks do not suffice. Who is preempted?"
    return _ask(
        moment, "preempted", text, frozenset(record.preempted), wrong, _who(moment), about=record.preempted
    )


def _new_blocks(moment: Moment) -> Question | None:
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
    return _ask(moment, "new blocks", text, right, wrong, _who(moment), about=list(right), because=because)


def _samples(moment: Moment) -> Question | None:
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
    return _ask(moment, "samples", text, right, wrong, _who(moment), about=list(everybody), because=because)


def _finished(moment: Moment) -> Question | None:
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
    return _ask(moment, "finished", text, right, wrong, _who(moment), about=list(right))


# ── why ───────────────────────────────────────────────────────────────────────────────────────────────


def _stopped(moment: Moment) -> Question | None:
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
    return _ask(moment, "stopped", text, decision.reason, wrong, texts.get, about=[name])


KINDS: dict[str, Kind] = {
    "preempted": Kind(lambda r: r.preempted, _preempted),
    "stopped": Kind(lambda r: any(d.action == "wait" for d in r.decisions), _stopped),
    "tokens": Kind(lambda r: any(n > 1 for n in r.scheduled.values()), _tokens),
    "hit": Kind(lambda r: r.prefix_hits, _hit),
    "admitted": Kind(lambda r: r.admitted or r.num_waiting, _admitted),
    "new blocks": Kind(lambda r: any(r.blocks_allocated.values()), _new_blocks),
    "finished": Kind(lambda r: r.finished, _finished),
    "samples": Kind(lambda r: r.scheduled.keys() != r.sampled.keys(), _samples),
    "runs": Kind(lambda r: r.admitted or len(r.scheduled) < len(r.running), _runs),
    "block": Kind(lambda r: any(len(b) == 1 for b in r.blocks_allocated.values()), _block),
    "free": Kind(lambda r: r.admitted or r.preempted, _free),
    "padding": Kind(lambda r: r.num_padded, _padding),
}
