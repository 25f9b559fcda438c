"""Questions whose answer is a number: how many tokens, how many blocks, which block.

Wrong ones come from the state: what it would be without the budget, without the cache, without the limit.
Next: `quiz_requests.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinycb.tracing.quiz_moment import Moment
from tinycb.tracing.quiz_question import Question, ask, between

__all__ = ["block", "chunk", "free", "hit", "padding"]


def chunk(moment: Moment) -> Question | None:
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
        wrong = between(1, max(total, moment.budget), wrong)
        text = f"How many tokens does {name} run?"
        return ask(moment, "tokens", text, count, wrong, str, about=[name])
    return None


def hit(moment: Moment) -> Question | None:
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
        return ask(moment, "hit", text, hit, between(0, total, wrong), str, about=[name], because=because)
    return None


def _token_ids(moment: Moment, name: str) -> Sequence[int]:
    request = moment.request(name)
    if request is not None:
        return request.token_ids
    return next((ids for other, ids in reversed(moment.prompts) if other == name), ())


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def free(moment: Moment) -> Question | None:
    """The pool after everyone has got blocks."""
    record, before, size = moment.record, len(moment.free), moment.block_size
    right = record.num_free_blocks
    if right == before:
        return None
    naive = before - sum(-(-count // size) for count in record.scheduled.values())
    wrong = [before, naive, before - len(record.scheduled), right + 1, right - 1, right + 2]
    wrong = between(0, moment.before.num_blocks, wrong)
    taken = sum(len(blocks) for blocks in record.blocks_allocated.values())
    because = f"{before} were free, {taken} are taken"
    freed = sum(len(record.blocks_freed.get(name, ())) for name in record.preempted)
    shared = before + freed - taken - right
    because += f", {freed} given back by preemption" if freed else ""
    because += f", {shared} shared again that nobody held" if shared > 0 else ""
    text = "How many blocks are free once everyone has got theirs?"
    return ask(moment, "free", text, right, wrong, str, about=list(record.admitted), because=because)


def padding(moment: Moment) -> Question | None:
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
    return ask(moment, "padding", text, right, between(1, 1 << 40, wrong), str, because=because)


def block(moment: Moment) -> Question | None:
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
        how = "was free" if blocks[0] in moment.free else "is given back in this step"
        because = f"block {blocks[0]} {how}; the others are held by {owners}"
        text = f"Which new block does {name} get?"
        return ask(moment, "block", text, blocks[0], wrong, "block {}".format, about=[name], because=because)
    return None
