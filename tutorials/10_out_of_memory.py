# %% [markdown]
# # 10. When memory runs out
#
# A prompt has a length, an answer has not: nobody knows it before it ends. So memory is given out for what is
# there, everybody grows, and one day the last block is gone. This chapter is about that step: who goes, what
# it costs, and what can be saved.

# %%
from tinycb.learn import chapter

here = chapter(10)

# %% [markdown]
# ## The limit of the last chapter
#
# There is a safe way: count how many requests of the greatest length fit, and let in no more. Here is what it
# would cost six people whose answers may have forty tokens each.

# %%
PROMPTS = [
    "Tell me a story about a lighthouse.",
    "Why is the sky blue?",
    "Name three primary colors.",
    "Give me a recipe for bread.",
    "Write one sentence about autumn.",
    "Explain what a cache is.",
]
roomy = here.serve("roomy", PROMPTS, 40, chat=True, max_num_seqs=6)


def blocks(tokens: int, block_size: int = 16) -> int:
    return -(-tokens // block_size)


reserved = {o.request_id: blocks(len(o.prompt_token_ids) + 40) for o in roomy.outputs}
at_begin = {o.request_id: blocks(len(o.prompt_token_ids)) for o in roomy.outputs}
at_end = {o.request_id: blocks(len(o.prompt_token_ids) + len(o.token_ids) - 1) for o in roomy.outputs}

# %% tags=["hide-input"]
here.table(
    ["", "tokens of the answer", "blocks reserved", "needed at first", "needed in the end"],
    [
        [o.request_id, len(o.token_ids), *(count[o.request_id] for count in (reserved, at_begin, at_end))]
        for o in roomy.outputs
    ],
)
held, existed = 0, 0
for record in roomy.records:
    held += sum(len(table) for table in record.block_tables.values())
    existed += sum(reserved[name] for name in record.scheduled)
here.say(f"""
    Reserving takes **{sum(reserved.values())}** blocks from the first step on. At first they need
    **{sum(at_begin.values())}**, and over the whole run, step by step, {held / existed:.0%} of what would
    have been reserved. The rest would lie there for tokens that do not exist yet, or never will.
""")

# %% [markdown]
# ## The idea
#
# Take a block only when a token needs it, and let in whoever fits today. Then a step will come in which
# somebody needs a block and there is none. Nobody can go on without memory, so somebody must give theirs up.

# %% tags=["hide-input"]
here.term(
    "preemption",
    "a running request loses its blocks and its place, and goes back to the head of the queue. The tokens it "
    "has sampled so far are kept; their keys and values are not.",
)
here.term(
    "recompute",
    "to bring a preempted request back by running its prompt and its answer so far again, as if all of it "
    "were a prompt: the same tokens give the same keys and values.",
)

# %% [markdown]
# Nothing new has to be built for the way back. A request has `num_computed_tokens`, which chases
# `num_tokens`; set the first one to zero, and the scheduler of chapter 8 does the rest, in chunks if need be.
#
# ## The code
#
# `grow` gets a running request its next block. As long as there are too few, the *newest* of those that run
# loses everything. The one that grows may be the newest itself.

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.scheduler:Scheduler.grow", "needs = self._blocks_for", "return True")
here.show_source("tinycb.scheduling.scheduler:Scheduler._preempt", "output.blocks_freed", "appendleft")

# %% [markdown]
# Why the newest? As a rule it has the least to lose, and those that came before it are served in the order in
# which they came. And so that the step does not give away at once what it has just won, it admits nobody:

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.chunked:ChunkedScheduler.schedule", "if output.preempted", "break")

# %% [markdown]
# ## Three requests and six blocks

# %%
REQUESTS = {"A": (7, 7), "B": (6, 7), "C": (4, 6)}  # tokens of the prompt, tokens of the answer
SMALL = {"block_size": 4, "num_blocks": 6}

# %% tags=["hide-input"]
size, pool = SMALL["block_size"], SMALL["num_blocks"]
need = {name: blocks(prompt, size) for name, (prompt, _) in REQUESTS.items()}
at_first = ", ".join(f"{name} takes {count}" for name, count in need.items())
first = here.predict(
    f"Blocks have {size} tokens, so at the beginning {at_first}, and {pool - sum(need.values())} is left. "
    "Everybody grows, and the first who finds no free block is A. Who gives up blocks?",
    ["A itself", "B", "C"],
)
again = here.predict(
    "Somebody is preempted after sampling a few tokens. What must be computed when they come back?",
    ["the prompt and the answer so far", "the answer so far", "the prompt", "the newest token"],
)

# %%
example = here.script("example", REQUESTS, **SMALL)
here.timeline(example)
here.steps(example)

# %% tags=["hide-input"]
before = next(record for record in example.records if record.preempted)
decision = next(d for d in before.decisions if d.action == "preempt")
victim = decision.request_id
assert decision.numbers.get("winner") == "A"
first.see(
    "A itself" if victim == "A" else victim,
    f"Step {before.step}: {decision.sentence}. {victim} came last, and is the head of the queue now.",
)
back = next(record for record in example.records if victim in record.admitted and record.step > 0)
prompt, sampled = REQUESTS[victim][0], sum(victim in r.sampled for r in example.records[: back.step])
run = back.scheduled[victim]
again.see(
    {
        prompt + sampled: again.choices[0],
        sampled: again.choices[1],
        prompt: again.choices[2],
        1: again.choices[3],
    }[run],
    f"In step {back.step} {victim} runs {run} tokens: {prompt} of its prompt and the {sampled} that it had "
    f"sampled. It samples the next one in the same step, as if nothing had happened.",
)

# %% [markdown]
# Here is the step in which it happened. The letters in the row of blocks say whose they are.

# %%
here.picture(example, before.step)

# %% [markdown]
# ## On real prompts
#
# The six of the beginning again, with less memory than they will need in the end.

# %%
pool = sum(at_end.values()) * 6 // 10
tight = here.serve("tight", PROMPTS, 40, chat=True, max_num_seqs=6, num_blocks=pool)
here.timeline(tight)

# %% tags=["hide-input"]
same = all(one.token_ids == two.token_ids for one, two in zip(roomy.outputs, tight.outputs, strict=True))
here.claim(
    same and tight.totals.num_preemptions > 0,
    f"""
    {pool} blocks instead of {sum(at_end.values())}, {tight.totals.num_preemptions} preemptions, and every
    answer is the same, token for token. A preempted reader sees the text pause, and then go on.
    """,
)

# %% [markdown]
# Who waits, and for how long? Steps are counted from the question to the whole answer.

# %% tags=["hide-input"]
here.table(
    ["", "preempted", "tokens computed again", "steps, roomy", "steps, tight"],
    [
        [
            two.request_id,
            two.metrics.num_preemptions,
            two.metrics.num_recomputed_tokens,
            one.metrics.e2el_steps,
            two.metrics.e2el_steps,
        ]
        for one, two in zip(roomy.outputs, tight.outputs, strict=True)
    ],
)
thrown_out = [
    (d.request_id, d.numbers.get("winner", d.request_id))
    for record in tight.records
    for d in record.decisions
    if d.action == "preempt"
]
here.claim(
    all(victim >= winner for victim, winner in thrown_out)
    and tight["A"].metrics.e2el_steps == roomy["A"].metrics.e2el_steps,
    """
    Nobody was preempted for somebody who came later, and A, who came first, waited not a single step. The
    shortage is paid from the end of the queue: by those whose blocks are taken, and by those who are not let
    in because nothing is free.
    """,
)

# %% [markdown]
# How small may the pool be? Six alike, in less and less memory; nobody computes here, so the steps can be
# many.

# %% tags=["hide-input"]
ALIKE = dict.fromkeys("ABCDEF", (12, 20))
swept = {
    size: here.script(f"pool of {size}", ALIKE, max_num_seqs=6, block_size=4, num_blocks=size)
    for size in (48, 32, 20, 12)
}
here.table(
    ["blocks", "at once, at most", "preemptions", "tokens computed again", "of all tokens", "forwards"],
    [
        [
            size,
            max(len(r.running) for r in run.records),
            run.totals.num_preemptions,
            run.totals.waste.recomputed_tokens,
            f"{run.totals.waste.recomputed_tokens / run.totals.scheduled_tokens:.0%}",
            run.totals.forwards,
        ]
        for size, run in swept.items()
    ],
)

# %% [markdown]
# Less memory, fewer at once, more steps; that was to be expected. But a part of the work is done twice, and
# that part can be saved.
#
# ## What is still there
#
# A freed block is not wiped. Its keys and values lie in it until somebody else writes over them. If the pool
# remembers *which* tokens a block holds, and all tokens before them, then a request that begins with the same
# tokens can take it as it is.

# %% tags=["hide-input"]
here.term(
    "prefix caching",
    "a full block can be found by its tokens and all tokens before them, as long as nobody has written over "
    "it. A request whose text begins the same way takes such blocks instead of computing them.",
)
here.show_source("tinycb.scheduling.block_pool:BlockPool.find_prefix")

# %% [markdown]
# A half-full block is never shared, because its owner still writes into it. The last token is never taken
# from the cache, because its logits are what the request came for. And so that blocks with a remembered
# prefix live as long as they can, the free list is used from one end: freed blocks without a prefix go to the
# front, where the next one is taken, and those with one to the back, the tail of a text before its head.

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.block_pool:BlockPool.free")

# %% [markdown]
# The same three requests, with it:

# %% tags=["hide-input"]
returns = {name: record for record in example.records if record.step > 0 for name in record.admitted}
left = next(record for record in example.records if "B" in record.preempted)
comes = returns["B"]
found = here.predict(
    f"B was preempted in step {left.step} and came back in step {comes.step}, to compute "
    f"{comes.scheduled['B']} tokens again. With prefix caching, how many of them will it find?"
)

# %%
cached = here.script("with prefix caching", REQUESTS, prefix_caching=True, **SMALL)
here.steps(cached, first=before.step)

# %% tags=["hide-input"]
hits = {name: record.prefix_hits.get(name, 0) for record in cached.records for name in record.admitted}
gone = cached.records[before.step].blocks_freed[victim]
taken = {
    block: name
    for record in cached.records[before.step : comes.step]
    for name, given in record.blocks_allocated.items()
    for block in given
    if block in gone
}
went = [
    f"{', '.join(str(block) for block in sorted(taken) if taken[block] == name)} went to {name}"
    for name in sorted(set(taken.values()))
]
found.see(
    hits["B"],
    f"Nobody has needed B's blocks since; of its {comes.scheduled['B'] - 1} computed tokens, {hits['B']} "
    f"are in whole blocks of {SMALL['block_size']}, and the others are not shared. {victim} finds "
    f"{hits[victim]}: of its blocks, {' and '.join(went)} while it waited.",
)

# %% [markdown]
# So a preempted request may find something, if it comes back soon. The great gain is elsewhere: different
# people send the same beginning. Here is a museum's guide, told at length how to behave, and five visitors.

# %%
GUIDE = (
    "You are a guide in a museum of lighthouses. Answer in one short sentence. Be patient with children, and "
    "speak plainly. If you do not know something, say that you do not know it, and show the way to the "
    "library. The museum opens at nine in the morning and closes at sunset. There is tea in the old boat "
    "house. "
)
QUESTIONS = [
    "Who lit the lamp?",
    "How far could it be seen?",
    "Why is it red and white?",
    "What did the keeper eat?",
    "Is it still in use?",
]
texts = [GUIDE + question for question in QUESTIONS]
ANSWER = 12
largest = max(blocks(len(here.encode(text)) + ANSWER) for text in texts)


def museum(name: str, prefix_caching: bool):
    """A visitor a step, and memory for two and a half of them."""
    return here.serve(
        name,
        texts,
        ANSWER,
        arrive=list(range(len(texts))),
        ignore_eos=True,
        max_num_seqs=8,
        num_blocks=largest * 5 // 2,
        prefix_caching=prefix_caching,
        max_num_batched_tokens=512,
    )


# %% tags=["hide-input"]
shared = len(here.encode(GUIDE))
how_many = here.predict(
    f"The guide's instructions have about {shared} tokens, and blocks have 16. A comes first, B one step "
    "later. How many tokens will B find?"
)

# %%
without = museum("alone", prefix_caching=False)
here.timeline(without)
with_prefix = museum("shared", prefix_caching=True)
here.timeline(with_prefix)

# %% tags=["hide-input"]
b_found = with_prefix["B"].metrics.num_cached_tokens
how_many.see(
    b_found,
    f"{b_found // 16} whole blocks of 16; the next one holds the end of the instructions and the beginning "
    f"of A's question. B computes {len(with_prefix['B'].prompt_token_ids) - b_found} tokens of "
    f"{len(with_prefix['B'].prompt_token_ids)}.",
)


def most_at_once(run):
    return max(len(record.running) for record in run.records)


here.claim(
    most_at_once(with_prefix) > most_at_once(without)
    and all(
        one.token_ids == two.token_ids for one, two in zip(without.outputs, with_prefix.outputs, strict=True)
    ),
    f"""
    And a block that several hold takes its memory once. In the same {with_prefix.config.num_blocks} blocks,
    {most_at_once(with_prefix)} ran at once instead of {most_at_once(without)}. The answers are the same.
    """,
)
together = next(r for r in with_prefix.records if len(r.running) == most_at_once(with_prefix))
tables = {name: list(table) for name, table in together.block_tables.items()}

# %% [markdown]
# Their block tables in the first step in which all of those run:

# %% tags=["hide-input"]
here.table(
    ["", "blocks that A holds, too", "its own"],
    [
        [
            name,
            [block for block in table if block in tables["A"]] if name != "A" else "",
            [block for block in table if block not in tables["A"] or name == "A"],
        ]
        for name, table in tables.items()
    ],
    f"step {together.step}: physical blocks, in logical order",
)

# %% [markdown]
# ## What it gained

# %%
here.compare(without, with_prefix, measures=("forwards", "rows", "hits", "preemptions", "ttft", "time"))

# %% tags=["hide-input"]
here.gain(
    "rows computed for the same answers",
    without.totals.forward_tokens,
    with_prefix.totals.forward_tokens,
    "rows",
)
here.gain(
    "steps to the first token, on average",
    without.totals.ttft_steps.mean,
    with_prefix.totals.ttft_steps.mean,
    "steps",
)
reserving = sum(reserved[o.request_id] for o in roomy.outputs)
here.gain("blocks for the six of the beginning", reserving, pool, "blocks")

# %% tags=["hide-input"]
owners, handed = {}, 0
for record in tight.records:
    for name, given in record.blocks_allocated.items():
        for block in given:
            handed += owners.get(block, name) != name
            owners[block] = name
holders = max(sum(table[0] == other[0] for other in tables.values()) for table in tables.values())
here.say(f"""
    ## What it leaves open

    In the tight run {handed} blocks went from one person to another, and in the museum one block was held by
    {holders} at once. One count that is off by one, one block that is reused a step too early, and somebody
    reads the end of a stranger's answer; most runs would look right all the same. How do we know that it
    never happens? Comparing a few answers, as we have done so far, is not enough.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("10_make_room")
here.exercise("10_prefix_hit")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler._preempt_request",
    "Blocks freed, `num_computed_tokens` zero, back to the head of `waiting`.",
)
here.vllm(
    "vllm/v1/core/kv_cache_manager.py",
    "KVCacheManager.get_computed_blocks",
    "What a request finds, never its last token; `KVCacheManager.allocate_slots`, beside it, says no when "
    "blocks are too few, and then the scheduler preempts.",
)
here.vllm(
    "vllm/v1/core/block_pool.py",
    "BlockPool.free_blocks",
    "The order of the free list; `get_new_blocks` takes from its front, and there a remembered prefix ends.",
)

# %% tags=["hide-input"]
here.finish(
    tight,
    "[chapter 11](11_proof.py): how to be sure. "
    "[`tinycb/scheduling/block_pool.py`](../tinycb/scheduling/block_pool.py) is the whole bookkeeping of "
    "this chapter; `tinycb tui` without a trace shows a built-in run with a preemption and a shared prefix "
    "in it.",
)
