# %% [markdown]
# # 2. Static batching
#
# In the last chapter one request had the model for itself, and most of its forwards had a single row. Now
# several requests share a forward, in the way that came first and is still the easiest to write: they begin
# together, run side by side, and end together.

# %%
from tinycb.learn import chapter

here = chapter(2)

# %% [markdown]
# ## The limit of the last chapter
#
# Eight people ask at the same moment, and are served one after another. (With `chat=True` a prompt gets the
# frame of a conversation around it, if the model has one. An answer may be shorter than its limit: a token of
# its own, end-of-sequence, says that it is over.)

# %%
PROMPTS = [
    "Say hello.",
    "Say this in fewer words: The ferry to the island leaves at noon from the old pier, and whoever wants to "
    "take a bicycle along must come half an hour early, because the deck is small and the crew loads it by "
    "hand.",
    "Name a bird.",
    "Name two colors.",
    "Tell me about the moon.",
    "What is the capital of Italy?",
    "Write a line about rain.",
    "Yes or no?",
]
MAX_TOKENS = [5, 32, 6, 12, 24, 8, 16, 4]

alone = here.serve("one by one", PROMPTS, MAX_TOKENS, chat=True, max_num_seqs=1, batching="continuous")
here.timeline(alone)

# %% tags=["hide-input"]
single = sum(sum(record.scheduled.values()) == 1 for record in alone.records)
here.say(f"""
    {alone.totals.num_output_tokens} tokens came out, in {alone.totals.forwards} forwards, and {single} of
    these had a single row. H, the last, got its first token in step
    {alone["H"].metrics.ttft_steps}, though it wanted only {len(alone["H"].token_ids)} tokens.
""")
cheap = here.predict(
    "A forward reads all weights of the model, for one row as for many. Give it four rows, of four requests "
    "that decode, instead of one. How much longer does it take on this machine?",
    ["less than twice as long", "two to three times as long", "four times as long, or nearly"],
)

# %%
times = {}
for rows in (1, 2, 4, 8):
    prompts = [PROMPTS[0]] * rows
    run = here.serve(f"rows {rows}", prompts, 8, chat=True, ignore_eos=True, max_num_seqs=rows)
    times[rows] = min(record.time_end - record.time_start for record in run.records[1:])

# %% tags=["hide-input"]
here.table(
    ["rows", "ms a forward", "ms a row"],
    [[rows, f"{1000 * t:.2f}", f"{1000 * t / rows:.2f}"] for rows, t in times.items()],
    "a forward in which every request decodes; the fastest of a few, measured now, on this machine",
)
longer = times[4] / times[1]
cheap.see(
    cheap.choices[0 if longer < 2 else 1 if longer < 3 else 2],
    f"Four rows took {longer:.1f} times as long as one, so a row of them costs {longer / 4:.0%} of a lone "
    f"one. With eight rows it is {times[8] / times[1] / 8:.0%}.",
)

# %% [markdown]
# Rows that run together are cheap. So let us have them run together.

# %% [markdown]
# ## The idea
#
# Take as many requests as there are places, lay them on top of each other as the rows of a table, and run the
# table. After each forward every request has one token more. When the last of them is done, take the next
# ones.
#
# A table needs rows of one length, and prompts have many lengths. So every shorter one is filled up with
# something that means nothing. It is filled up *on the left*: what comes next stands at the right end, and
# there all rows must be level.

# %% tags=["hide-input"]
here.term(
    "static batching",
    "requests are grouped into batches before they run; a batch begins together and ends together.",
)
here.term("batch slot", "a place in the batch. Whoever has it keeps it until the batch ends.")
here.term(
    "padding", "tokens that belong to nobody, put before a shorter prompt so that all rows have one length."
)

# %% [markdown]
# A small example, with counts instead of texts: three requests, three places.

# %%
example = {"A": (5, 2), "B": (2, 7), "C": (3, 4)}  # tokens of the prompt, tokens of the answer

# %% tags=["hide-input"]
real = sum(prompt for prompt, _ in example.values())
first = here.predict(
    f"The three prompts have {', '.join(str(prompt) for prompt, _ in example.values())} tokens, {real} "
    "together. How many rows does the first forward compute?"
)

# %%
small = here.script("example", example, batching="static", max_num_seqs=3)
here.row(small, 0)
here.row(small, 1)
here.timeline(small)

# %% tags=["hide-input"]
record = small.records[0]
computed = sum(record.scheduled.values()) + record.num_padded
first.see(
    computed,
    f"{len(example)} rows of {max(record.scheduled.values())}: {real} tokens of prompts, and "
    f"{record.num_padded} of padding. From then on it is {len(example)} a forward, a token each.",
)
held = {d.request_id: d.numbers["held"] for r in small.records for d in r.decisions if d.action == "return"}
returned = small["A"].metrics.e2el_steps
here.say(f"""
    In the timeline, a dot is a slot whose request is done. The table keeps its {len(example)} rows, so a
    token of padding runs there, to the end: {small.totals.waste.padded_tokens - record.num_padded} more of
    them. And A, which was complete after {returned - held["A"]} steps, is given back after {returned}.
""")

# %% [markdown]
# ## The code
#
# The static scheduler takes somebody in only when all that run are done. Until then those that are done stay
# in the batch, with nothing to run, and whoever waits is told so.

# %% tags=["hide-input"]
here.show_source(
    "tinycb.scheduling.static:StaticScheduler.schedule", "if all(request.is_finished", "self.running = []"
)
here.show_source(
    "tinycb.scheduling.static:StaticScheduler.schedule",
    "for request in self.running:",
    "request.num_tokens -",
)
here.show_source(
    "tinycb.scheduling.static:StaticScheduler.schedule", "while self.waiting", "unfinished=unfinished)"
)

# %% [markdown]
# Padding is made where the chosen tokens are laid out for the model. The longest gives the width, and the
# others get zeros before their own tokens. The model computes these rows like all others. No real token ever
# looks at them, and what comes out of them is dropped.

# %% tags=["hide-input"]
here.show_source("tinycb.packing:pack", "width = max", "token_ids.extend(row.token_ids")

# %% [markdown]
# ## The run
#
# The eight people again, in two batches of four.

# %%
static = here.serve("static", PROMPTS, MAX_TOKENS, chat=True, times=2, batching="static", max_num_seqs=4)
here.timeline(static)

# %% [markdown]
# The first forward, as the model gets it. A dot is a token of padding.

# %%
here.row(static, 0)

# %% [markdown]
# And the steps, with the reasons. What they say about memory and a prefix cache belongs to chapters 6 and 10.

# %%
here.steps(static)

# %% tags=["hide-input"]
entry = {record.step: record for record in static.records if record.admitted}
before_prompts = sum(record.num_padded for record in entry.values())
after_the_end = static.totals.waste.padded_tokens - before_prompts
all_rows = static.totals.forward_tokens
here.table(
    ["rows that were computed", "number", "share"],
    [
        [what, rows, f"{rows / all_rows:.0%}"]
        for what, rows in [
            ("for a request", all_rows - before_prompts - after_the_end),
            ("padding before a shorter prompt", before_prompts),
            ("in the slot of one that was done", after_the_end),
            ("together", all_rows),
        ]
    ],
    "counted from the arrays that the model was given",
)
here.term(
    "long tail",
    "most answers are short and a few are very long. In a static batch the few decide when everybody is "
    "done.",
)

# %% [markdown]
# ## What each one feels
#
# So far we have counted rows. A person counts seconds, and two of them matter: how long until something
# appears, and how fast it goes on from there.

# %% tags=["hide-input"]
here.term("TTFT", "time to first token: from the arrival of a request to its first token.")
here.term(
    "TPOT",
    "time per output token: from the first token to the moment the answer is given back, divided by the "
    "tokens after the first.",
)


# %% tags=["hide-input"]
def felt(output):
    metrics = output.metrics
    return [
        output.request_id,
        len(output.token_ids),
        metrics.ttft_steps,
        metrics.ttft_steps + sum(metrics.itl_steps),
        metrics.e2el_steps,
        f"{metrics.ttft:.2f} s",
        f"{1000 * metrics.tpot:.0f} ms",
    ]


here.table(
    ["", "tokens", "first at", "done at", "returned at", "TTFT", "TPOT"],
    [felt(output) for output in static.outputs],
    "steps after arrival; and seconds, measured now, on this machine",
)
late = {output.request_id: felt(output)[4] - felt(output)[3] for output in static.outputs}
worst = max(late, key=late.get)
seconds_batch = [output.request_id for output in static.outputs if output.metrics.ttft_steps > 1]
here.claim(
    len(seconds_batch) == len(PROMPTS) - 4,
    f"{', '.join(seconds_batch)} wait for the whole first batch before they see anything. And {worst} is "
    f"done {late[worst]} steps before it is given back; its TPOT has that wait in it, and looks as if the "
    "model had been slow.",
)

# %% [markdown]
# ## What if we knew?
#
# The waste comes from unequal neighbours. Suppose we knew how long each answer would be, and put like with
# like. In real life nobody knows it.

# %% tags=["hide-input"]
wasted = static.totals.waste.padded_tokens
guess = here.predict(
    f"In the order in which they came, {wasted} rows were computed for nobody. How many will it be if the "
    "eight are sorted by the length of their answers first?"
)

# %%
lengths = [len(output.token_ids) for output in static.outputs]
order = sorted(range(len(PROMPTS)), key=lambda i: lengths[i])
by_length = here.serve(
    "sorted",
    [PROMPTS[i] for i in order],
    [MAX_TOKENS[i] for i in order],
    chat=True,
    times=2,
    batching="static",
    max_num_seqs=4,
)
here.timeline(by_length)

# %% tags=["hide-input"]
left = by_length.totals.waste.padded_tokens
unequal = sum(record.num_padded for record in by_length.records if record.admitted)
guess.see(
    left,
    f"{left / by_length.totals.forward_tokens:.0%} of all rows, and it was {wasted / all_rows:.0%}; "
    f"{by_length.totals.forwards} forwards, and it was {static.totals.forwards}. {left - unequal} of the "
    f"{left} are in slots of requests that were done, {unequal} stand before prompts: whoever sorts by one "
    "length does not sort by the other.",
)

# %% [markdown]
# ## What it gained

# %%
measures = ("forwards", "rows", "padding", "ttft", "tpot", "time", "speed")
here.compare(alone, static, measures=measures)

# %% tags=["hide-input"]
here.gain("forwards for the same answers", alone.totals.forwards, static.totals.forwards, "forwards")
here.gain(
    "output tokens a second",
    alone.totals.tokens_per_second,
    static.totals.tokens_per_second,
    "tokens/s",
    measured=True,
)

# %% tags=["hide-input"]
first_one, first_all = alone.totals.ttft_steps.mean, static.totals.ttft_steps.mean
next_one, next_all = alone.totals.tpot_steps.mean, static.totals.tpot_steps.mean
here.claim(
    first_all < first_one and next_all > next_one,
    f"Counted in steps, the first token now comes after {first_all:.1f} on average, and came after "
    f"{first_one:.1f}. But each further one takes {next_all:.1f}, and took {next_one:.1f}: an answer that is "
    "done waits for its batch.",
)

# %% [markdown]
# ## What it leaves open
#
# Would more slots help? Here are sixteen requests with a long tail, as counts: prompts of one length, so that
# all waste comes from answers.

# %%
ANSWERS = [6, 9, 3, 64, 5, 12, 4, 7, 30, 5, 8, 3, 10, 4, 18, 6]
requests = {chr(ord("A") + i): (8, answer) for i, answer in enumerate(ANSWERS)}
wider = {
    slots: here.script(f"{slots} slots", requests, batching="static", max_num_seqs=slots)
    for slots in (1, 4, 16)
}

# %% tags=["hide-input"]
shares = {slots: run.totals.waste.padded_tokens / run.totals.forward_tokens for slots, run in wider.items()}
here.table(
    ["slots", "forwards", "rows", "for nobody", "share", "mean steps until returned"],
    [
        [
            slots,
            run.totals.forwards,
            run.totals.forward_tokens,
            run.totals.waste.padded_tokens,
            f"{shares[slots]:.0%}",
            f"{run.totals.e2el_steps.mean:.1f}",
        ]
        for slots, run in wider.items()
    ],
    f"{len(ANSWERS)} answers of {min(ANSWERS)} to {max(ANSWERS)} tokens, {sum(ANSWERS) / len(ANSWERS):.0f} "
    "on average",
)
here.claim(
    list(shares.values()) == sorted(shares.values()) and wider[16].totals.forwards == max(ANSWERS),
    f"The wider the batch, the fewer the forwards, and the larger the share of rows that nobody needs: with "
    f"{max(wider)} slots it is {shares[16]:.0%}, and everybody waits for the one answer of {max(ANSWERS)} "
    "tokens.",
)
blocked = [record for record in static.records if record.num_waiting and len(record.scheduled) < 4]
here.claim(
    bool(blocked),
    f"So static batching makes rows cheap, and then computes many for nobody: {wasted} of {all_rows} with "
    f"our eight people. And in {len(blocked)} of {len(static.records)} steps a slot was held by somebody who "
    "was done, while others waited outside.",
)

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("02_pad_left")
here.exercise("02_rows_for_nobody")

# %% [markdown]
# ## In vLLM
#
# There is no static batching in vLLM, and no padding of prompts: both are what it was written to avoid. Where
# it stands is transformers' `generate`, which takes a padded table of prompts and returns when all rows are
# done.

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.schedule",
    "No condition on a batch being over: the waiting queue is looked at in every call.",
)
here.vllm(
    "vllm/benchmarks/serve.py",
    "calculate_metrics",
    "TTFT and TPOT as they are defined here.",
)

# %% tags=["hide-input"]
here.finish(
    static,
    "[chapter 3](03_iteration_level.py): who runs is chosen anew before every forward; and "
    "[`tinycb/scheduling/static.py`](../tinycb/scheduling/static.py) as a whole.",
)
