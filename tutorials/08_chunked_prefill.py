# %% [markdown]
# # 8. Chunked prefill
#
# A forward can now hold anything: whole prompts, single tokens, keys anywhere in memory. That freedom has a
# victim. Whoever is in the middle of an answer waits for the longest prompt that comes in. In this chapter
# the wait is measured, and then cured by a few lines of the scheduler.

# %%
from tinycb.learn import chapter

here = chapter(8)

# %% [markdown]
# ## What is still wrong
#
# Three people are reading their answers as they appear, word by word. Then somebody pastes the whole logbook
# of a lighthouse and asks for a summary.

# %%
SHORT = ["Tell me a story about a lighthouse.", "Why is the sky blue?", "Write one sentence about autumn."]
WIND = ["north", "east", "south", "west"]
LOGBOOK = [
    f"Day {day}: wind {WIND[day % 4]}, {day * 7 % 30} ships passed, the lamp burned {day % 5 + 6} hours."
    for day in range(1, 6 if here.fast else 31)
]
PROMPTS = [*SHORT, "Summarize this logbook of a lighthouse.\n" + "\n".join(LOGBOOK)]
MAX_TOKENS, ARRIVE = [48, 48, 48, 8], [0, 0, 0, 8]


def serve(name: str, **config):
    return here.serve(name, PROMPTS, MAX_TOKENS, arrive=ARRIVE, chat=True, ignore_eos=True, **config)


# %% tags=["hide-input"]
wait = here.predict(
    "A, B and C decode when D brings the logbook. How many times as long as usual will A wait for its next "
    "token?"
)

# %%
continuous = serve("continuous", batching="continuous")
here.timeline(continuous)

# %% tags=["hide-input"]
from itertools import pairwise
from statistics import median

from tinycb.view.results import seconds

whole = continuous.records[ARRIVE[3]]
long_prompt = whole.scheduled["D"]


def gaps_of(run, who="A"):
    """Seconds between two tokens of a request, by the step that gave the second one."""
    given = [record for record in run.records if who in record.sampled]
    return {b.step: b.time_end - a.time_end for a, b in pairwise(given)}


def table_of_gaps(run, first, last):
    gaps = gaps_of(run)
    rows = [
        [
            step,
            sum(run.records[step].scheduled.values()),
            run.records[step].scheduled.get("D", 0),
            seconds(gaps[step]),
        ]
        for step in range(first, last + 1)
    ]
    here.table(
        ["step", "tokens of the forward", "of them D's", "A waited"],
        rows,
        f"{run.name}; seconds were measured now, on this machine",
    )


table_of_gaps(continuous, whole.step - 2, whole.step + 2)

# %% tags=["hide-input"]
usual = median(gap for step, gap in gaps_of(continuous).items() if step != whole.step)
longest = gaps_of(continuous)[whole.step]
wait.see(
    f"{longest / usual:.1f}",
    f"measured now, on this machine: {seconds(longest)} instead of {seconds(usual)}. Usually the "
    f"forward has {len(SHORT)} or {len(SHORT) + 1} tokens; this one had {sum(whole.scheduled.values())}, "
    f"{long_prompt} of them D's prompt.",
)

here.claim(
    all(gaps_of(continuous, who)[whole.step] == longest for who in "ABC"),
    """
    Nobody was left out: each of the three got a token in that very forward. But they got it when the forward
    was over, and it is over when its longest member is. B and C waited exactly as long as A. A mean would
    hide it, because it is a single gap among many; the reader sees the text stop.
    """,
)
here.term(
    "interference",
    "what the work of one request does to the waiting time of another in the same forward; here, a long "
    "prompt that makes everybody's next token late.",
)

# %% [markdown]
# ## The idea
#
# A prompt need not be computed at once. Its keys and values go into the cache token by token, and a query
# finds them through the block table, whenever they were written. So compute as much of it as there is room
# for, and the rest in the next forward, and say beforehand how much room a forward has.

# %% tags=["hide-input"]
here.term(
    "token budget",
    "the most tokens that one forward may run, of all requests together: `max_num_batched_tokens`.",
)
here.term(
    "chunked prefill",
    "a prompt is computed in several forwards, each running as much of it as the token budget has left after "
    "those that decode. The idea is from Sarathi-Serve (Agrawal et al., OSDI 2024).",
)

# %% [markdown]
# Two rules are enough:
#
# - those that run come first, in their order: one token for each that decodes;
# - what is left of the budget goes to the prompt that is half done, then to whoever waits longest.
#
# ## The code
#
# Compare it with the `schedule` of chapter 3. A request has `num_computed_tokens`, which chases `num_tokens`;
# the gap between the two is what it still has to run. A gap of one is a decode, a larger one is a prompt, and
# the scheduler need not know which: it takes the smaller of the gap and the budget.

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.chunked:ChunkedScheduler.schedule")

# %% [markdown]
# A request whose chunk does not reach its last token gets no logits and samples nothing. That is one
# comparison, where the scheduler puts a request into the batch:

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.scheduler:Scheduler.run", "name, start", "output.sampling.append")

# %% [markdown]
# ## Three requests, step by step
#
# By hand first, with numbers that fit on a line. A has a short prompt, B and C have longer ones, all three
# wait at the beginning, and a forward has room for eight tokens.

# %%
REQUESTS = {"A": (3, 6), "B": (9, 4), "C": (11, 3)}  # tokens of the prompt, tokens of the answer
BUDGET = 8


# %% tags=["hide-input"]
def shares(record):
    return ", ".join(f"{name} {count}" for name, count in record.scheduled.items())


first = here.predict(
    "How many tokens does each of them run in the first forward?",
    ["A 3, B 5", "A 3, B 3, C 2", "A 3", "A 3, B 9, C 11"],
)
second = here.predict("And in the second one: how many tokens of C?")

# %%
example = here.script(
    "example", REQUESTS, batching="chunked", max_num_batched_tokens=BUDGET, block_size=4, num_blocks=16
)
for step in range(5):
    here.row(example, step)

# %% tags=["hide-input"]
opening, following = example.records[0], example.records[1]
first.see(
    shares(opening),
    f"The budget is {BUDGET}. A's prompt fits whole. B gets what is left of it, {opening.scheduled['B']} of "
    f"{REQUESTS['B'][0]}, and C gets nothing. A samples its first token; B, in the middle of its prompt, "
    f"samples none.",
)
second.see(
    following.scheduled["C"],
    f"The second forward runs {shares(following)}: one token for A, who decodes; then B's other "
    f"{following.scheduled['B']}; and with {BUDGET - following.scheduled['A'] - following.scheduled['B']} "
    "left, C is let in with a chunk of that size.",
)

# %% [markdown]
# The whole run as a table. Follow one letter downwards through the column of tokens.

# %%
here.steps(example)


# %% tags=["hide-input"]
def in_order(record, lengths):
    """Those that decode come first; of those in their prompts, only the last one may stay half done."""
    in_prompt = [name for name in record.scheduled if record.num_computed[name] < lengths[name]]
    return list(record.scheduled)[len(record.scheduled) - len(in_prompt) :] == in_prompt and all(
        record.num_computed[name] + record.scheduled[name] >= lengths[name] for name in in_prompt[:-1]
    )


prompt_lengths = {name: prompt for name, (prompt, _) in REQUESTS.items()}
here.claim(
    all("A" in record.scheduled for record in example.records),
    "A is in every line: once it has begun, nobody's prompt costs it a step.",
)
here.claim(
    all(in_order(record, prompt_lengths) for record in example.records)
    and all(sum(record.scheduled.values()) <= BUDGET for record in example.records),
    """
    No line of the code says *decode first*. It follows from the order of arrival: a prompt is only left half
    done when the budget is spent, so nobody comes in behind it, and the half-done one is always the last of
    those that run. Everybody before it
    decodes, or runs the end of its own prompt.
    """,
)
lengths = ", ".join(
    str(record.scheduled["C"])
    for record in example.records
    if record.num_computed.get("C", prompt_lengths["C"]) < prompt_lengths["C"]
)
here.say(f"""
    C's prompt came in chunks of {lengths}: their sizes are whatever the others leave. The answer does not
    depend on them, because every token of the prompt still sees exactly its own past. That it
    holds for every prompt and every budget, and not only here, is something to prove: chapter 11.
""")

# %% [markdown]
# ## The cure
#
# Now the logbook again: the same prompts, the same moment, a budget.

# %% tags=["hide-input"]
budget = 64
steps = here.predict(f"With a budget of {budget}, over how many forwards will D's prompt be spread?")

# %%
chunked = serve("chunked", batching="chunked", max_num_batched_tokens=budget)
here.timeline(chunked)

# %% tags=["hide-input"]
chunks = [
    record.scheduled["D"]
    for record in chunked.records
    if "D" in record.scheduled and record.num_computed["D"] < long_prompt
]
others = len(SHORT)
room = budget - others
steps.see(
    len(chunks),
    f"Three tokens of each forward belong to A, B and C, so {room} are left for D: {long_prompt} tokens in "
    f"chunks of {room} make {len(chunks)}, the last one with {chunks[-1]}.",
)

# %%
begun = ARRIVE[3]
gaps = {f"continuous, step {step}": gaps_of(continuous)[step] for step in range(begun - 1, begun + 2)}
gaps |= {
    f"chunked, step {step}": gaps_of(chunked)[step] for step in range(begun - 1, begun + len(chunks) + 1)
}
here.bars(
    {name: 1000 * gap for name, gap in gaps.items()},
    "ms",
    "how long A waited for its next token, measured now",
)

# %% tags=["hide-input"]
same = all(
    one.token_ids == two.token_ids for one, two in zip(continuous.outputs, chunked.outputs, strict=True)
)
here.claim(
    same and all(sum(record.scheduled.values()) <= budget for record in chunked.records),
    "The one long forward has been cut into many: none is over the budget, A is in each of them, and all "
    "four answers are the same, token for token.",
)

# %% [markdown]
# ## What it gained, and who pays

# %%
here.compare(continuous, chunked, measures=("forwards", "rows", "most", "gap", "ttft"))

# %% tags=["hide-input"]
cured = max(gaps_of(chunked).values())
here.gain("A's longest gap", 1000 * longest, 1000 * cured, "ms", measured=True)
here.gain(
    "steps until D's first token",
    continuous["D"].metrics.ttft_steps,
    chunked["D"].metrics.ttft_steps,
    "steps",
)
here.gain(
    "TTFT of D", 1000 * continuous["D"].metrics.ttft, 1000 * chunked["D"].metrics.ttft, "ms", measured=True
)

# %% [markdown]
# D pays. Its first token comes after several forwards instead of one. In each it shares the row with the
# others, each reads the weights once more, and each reads the keys that all chunks before it have written.
# How much D pays, and how long the others wait, is set by one number. Here are some more values of it.

# %%
swept = [serve(f"budget {size}", batching="chunked", max_num_batched_tokens=size) for size in (32, 128, 256)]

# %% tags=["hide-input"]
runs = sorted([*swept, chunked], key=lambda run: run.config.max_num_batched_tokens)
rows = []
for run in [*runs, continuous]:
    limit = run.config.max_num_batched_tokens if run is not continuous else "none"
    number = sum(r.scheduled.get("D", 0) > 0 and r.num_computed["D"] < long_prompt for r in run.records)
    gap, ttft = max(gaps_of(run).values()), run["D"].metrics.ttft
    largest = max(sum(r.scheduled.values()) for r in run.records)
    rows.append([limit, number, largest, seconds(gap), seconds(ttft)])
here.table(
    ["budget", "forwards of D's prompt", "largest forward", "A's longest gap", "D's TTFT"],
    rows,
    "one prompt, several budgets; seconds were measured now, on this machine",
)
here.say(f"""
    ## What it leaves open

    From {rows[0][1]} forwards to {rows[-1][1]}, and from forwards of {rows[0][2]} tokens to one of
    {rows[-1][2]}: a small budget keeps the forwards short and makes the newcomer wait, a large one does the
    opposite. It should not be smaller than the number of those that decode, or somebody would wait for a
    single token. And `max_num_seqs`, the number of places, was {continuous.config.max_num_seqs}, because the
    lesson said so. Both must come from somewhere. What one more token in a forward costs,
    and how many requests memory has room for, is the next chapter.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("08_share_the_budget")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.schedule",
    "Read its first comment: there is no prefill phase and no decode phase. `token_budget` is what is left, "
    "and `num_new_tokens` is the smaller of gap and budget, as here.",
)
here.vllm(
    "vllm/config/scheduler.py",
    "SchedulerConfig.verify_max_model_len",
    "Where a budget smaller than `max_num_seqs` is refused. Beside it, `long_prefill_token_threshold` can "
    "limit one prompt's share of a step; it is off by default.",
)

# %% tags=["hide-input"]
here.finish(
    chunked,
    "[chapter 9](09_the_budget.py): where the budget and the number of places come from; and "
    "[`tinycb/scheduling/chunked.py`](../tinycb/scheduling/chunked.py), which you have now read. "
    "`tinycb tui --compare continuous,chunked` shows two ways of batching side by side.",
)
