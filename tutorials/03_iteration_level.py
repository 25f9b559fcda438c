# %% [markdown]
# # 3. Iteration-level scheduling
#
# In the last chapter a batch began together and ended together. In this one, every forward of the model is a
# new chance to choose who is in it. That one change is what the word *continuous* in continuous batching
# means.

# %%
from tinycb.learn import chapter

here = chapter(3)

# %% [markdown]
# ## The limit of the last chapter
#
# Eight people ask at the same moment, and there are four places. Some want one line, some a paragraph. Nobody
# knows beforehand how long an answer will be, so a static batch mixes short ones with long ones.

# %%
PROMPTS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name a fruit.",
    "Name three primary colors.",
    "Tell me a story about a lighthouse.",
    "Say hello.",
    "Write one sentence about autumn.",
    "What is two plus two?",
]
MAX_TOKENS = [10, 48, 5, 14, 48, 5, 20, 10]

static = here.serve("static", PROMPTS, MAX_TOKENS, chat=True, times=2, batching="static")
here.timeline(static)

# %% tags=["hide-input"]
waste = static.totals.waste
rows, padding = static.totals.forward_tokens, waste.padded_tokens
held = {
    decision.request_id: decision.numbers["held"]
    for record in static.records
    for decision in record.decisions
    if decision.action == "return"
}
longest_held = max(held, key=held.get)
here.say(f"""
    Look at the dots. Each is a row that the model really computed, for a request that was done. With the
    short prompts, which were filled up to the longest, **{padding} of {rows}** rows were computed for nobody:
    {padding / rows:.0%}. And the answer of {longest_held} was complete {held[longest_held]} steps before it
    was given back.
""")

# %% [markdown]
# Both have one cause: the choice of who runs is made once a *batch*. So make it once a *forward*.

# %%
forwards = here.predict(
    "The static run took two batches of four. If a free place is filled again at once, how many forwards "
    "will the same eight requests take?"
)

# %% [markdown]
# ## The idea
#
# One pass of the model gives each request in it one token. After it, three things are known that were not
# known before: who is done, which places are free, and who has come meanwhile. So after *every* pass:
#
# - whoever is done leaves, and the answer is given back at once;
# - whoever waits longest takes the free place;
# - everybody else goes on where they were.
#
# A request that has just come in has its whole prompt to compute; its neighbours have one token each. Both go
# through the same forward. How that is possible is the next chapter's story; here we only choose.

# %% tags=["hide-input"]
here.term(
    "iteration-level scheduling",
    "who runs is chosen anew before every forward of the model, not once for a whole batch. "
    "The idea is from Orca (Yu et al., OSDI 2022).",
)
here.term("admission", "a waiting request gets a place in the running batch, and begins to run.")

# %% [markdown]
# ## The code
#
# The engine is a loop, and one turn of it is a step: ask the scheduler, run the forward, give out the tokens,
# let go of those that are done.

# %% tags=["hide-input"]
here.show_source("tinycb.engine:Engine.step", "output = self.scheduler.schedule()", "return record")

# %% [markdown]
# The scheduler is asked every time. First come those that run already, then the head of the queue, for as
# long as there is room. Nothing in it remembers a batch. (`grow` and `preempted` are about memory, which
# comes in chapters 6 and 10.)

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.continuous:ContinuousScheduler.schedule")

# %% [markdown]
# And after the forward: those that are done leave `running`, so that the next `schedule` finds their places
# free. The static scheduler overrides exactly this method, and lets nobody leave before everybody is done.

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.scheduler:Scheduler.update")
here.show_source("tinycb.scheduling.static:StaticScheduler.update")

# %% [markdown]
# ## The run

# %%
continuous = here.serve("continuous", PROMPTS, MAX_TOKENS, chat=True, times=2, batching="continuous")
here.timeline(continuous)

# %% tags=["hide-input"]
crowded = [record for record in continuous.records if record.num_waiting]
here.claim(
    continuous.totals.waste.padded_tokens == 0 and all(len(record.scheduled) == 4 for record in crowded),
    "No dots are left, and as long as somebody waits, every place is somebody's.",
)

# %% [markdown]
# Here is the same run as a table. A number behind a letter is how many tokens that request runs in the step;
# without one, it is a single token. The sentences name the reason of each choice; they also speak of memory
# and of a prefix cache, which belong to chapters 6 and 10.

# %%
here.steps(continuous)

# %% tags=["hide-input"]
steps, before = continuous.totals.forwards, static.totals.forwards
tokens, slots = continuous.totals.num_output_tokens, continuous.config.max_num_seqs
last = continuous.outputs[-1].request_id
tail = max(continuous.outputs, key=lambda output: output.metrics.e2el_steps)
forwards.see(
    steps,
    f"The static batches took {before}. {tokens} tokens came out, {slots} places give at most {slots} in a "
    f"forward, so fewer than {-(-tokens // slots)} is impossible. What is above that is the end of the run: "
    f"{tail.request_id} still decodes when nobody is left to take the free places.",
)

# %% [markdown]
# ## Who pays for the newcomer?

# %%
entrance = next(record for record in continuous.records if record.step > 0 and record.admitted)
newcomer = entrance.admitted[0]
question = here.predict(
    f"{newcomer} comes in while others are in the middle of their answers. What does that forward run?",
    [
        f"the prompt of {newcomer} alone; the others wait for one step",
        f"the whole prompt of {newcomer}, and one token of each of the others",
        "one token of each of the four",
    ],
)

# %%
here.row(continuous, entrance.step)

# %% tags=["hide-input"]
others = {name: count for name, count in entrance.scheduled.items() if name not in entrance.admitted}
newcomers = {name: entrance.scheduled[name] for name in entrance.admitted}
if not others:
    answer = question.choices[0]
elif max(newcomers.values()) > 1:
    answer = question.choices[1]
else:
    answer = question.choices[2]
usual = min(sum(record.scheduled.values()) for record in continuous.records if len(record.scheduled) == slots)
question.see(
    answer,
    f"Step {entrance.step} runs {sum(entrance.scheduled.values())} tokens, "
    f"{sum(newcomers.values())} of them for the prompt of {' and '.join(newcomers)}; a step with nobody new "
    f"runs {usual}. Nobody is left out, but everybody in that step waits until the longer forward is done.",
)

# %% [markdown]
# ## What it gained

# %%
here.compare(static, continuous)

# %% tags=["hide-input"]
here.gain("forwards for the same answers", before, steps, "forwards")
here.gain(
    "steps from the question to the whole answer, on average",
    static.totals.e2el_steps.mean,
    continuous.totals.e2el_steps.mean,
    "steps",
)
here.gain(
    "output tokens a second",
    static.totals.tokens_per_second,
    continuous.totals.tokens_per_second,
    "tokens/s",
    measured=True,
)

# %% tags=["hide-input"]
largest = max(continuous.records, key=lambda record: sum(record.scheduled.values()))
here.say(f"""
    ## What it leaves open

    The smallest full step ran {usual} tokens, the largest {sum(largest.scheduled.values())}, because nothing
    limits what an admission may bring. A prompt of some thousand tokens would make everybody in its step wait
    for all of it. That is cured in chapter 8. Before that, there is something we have only assumed: that a
    prompt and single tokens fit into one forward at all.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("03_refill")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.schedule",
    "Two loops, as here: first over `self.running`, then over the waiting queue while there is room.",
)
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.update_from_output",
    "After the forward: who is done leaves, and its blocks are free for the next call.",
)

# %% tags=["hide-input"]
here.finish(
    continuous,
    "[chapter 4](04_packing.py): how a prompt and single tokens become one row of one forward; "
    "and [`tinycb/scheduling/continuous.py`](../tinycb/scheduling/continuous.py) as a whole, "
    "which you have now read.",
)
