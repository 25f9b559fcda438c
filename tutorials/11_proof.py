# %% [markdown]
# # 11. Proof
#
# Every comparison so far ended with the same line: each request got the same tokens. It was true of the
# prompts that were run. This chapter asks what such a line is worth, and then gets a better one.

# %%
from tinycb.learn import chapter

here = chapter(11)

# %% [markdown]
# ## The limit of the last chapter
#
# In chapter 10 a request that lost its blocks kept its tokens, computed them again, and went on where it was.
# Suppose that somebody gets one line of that wrong, and throws away the answer so far as well.

# %% tags=["hide-input"]
here.term(
    "planted fault",
    "a mistake made on purpose: one right line of the running program is replaced by a wrong one, "
    "to see what notices it.",
)

# %% [markdown]
# tinycb has a list of them, `FAULTS` in [`tinycb/proofs/planted.py`](../tinycb/proofs/planted.py). This is
# the one that forgets the answer, and the method that it is planted in:

# %% tags=["hide-input"]
from tinycb.proofs.planted import FAULTS

forgets = FAULTS["recompute_forgets_the_output"]
here.show_source(
    "tinycb.scheduling.scheduler:Scheduler._preempt", "output.blocks_freed", "self.waiting.appendleft"
)
here.table(["", forgets.name], [["right", forgets.line], ["planted", forgets.replacement]])

# %% [markdown]
# Here are some prompts in a cache that is too small for them, so that somebody is preempted. Then the same
# again, with the fault in place.

# %%
from tinycb.proofs.planted import planted

PROMPTS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name a fruit.",
    "Name three primary colors.",
    "Tell me a story about a lighthouse.",
    "Say hello.",
]
MAX_TOKENS = [12, 24, 12, 16, 24, 8]
BLOCKS = 5 if here.fast else 4
TIGHT = {"num_blocks": BLOCKS, "prefix_caching": True}

right = here.serve("right", PROMPTS, MAX_TOKENS, ignore_eos=True, **TIGHT)
here.timeline(right)

# %% tags=["hide-input"]
question = here.predict(
    "With the fault planted, a preempted request loses what it has answered so far. "
    "What will the answers of the run be?",
    ["the same, every token", "different, for those that were preempted", "different, for everybody"],
)

# %%
with planted("recompute_forgets_the_output"):
    faulty = here.serve("faulty", PROMPTS, MAX_TOKENS, ignore_eos=True, **TIGHT)
here.timeline(faulty)

# %% tags=["hide-input"]
differ = [name for name in right.names if right[name].token_ids != faulty[name].token_ids]
hit = sorted({name for record in right.records for name in record.preempted})
if not differ:
    answer = question.choices[0]
elif set(differ) <= set(hit):
    answer = question.choices[1]
else:
    answer = question.choices[2]
answered = sum(len(output.token_ids) for output in faulty.outputs)
sampled = sum(len(record.sampled) for record in faulty.records)
question.see(
    answer,
    f"{', '.join(hit)} {'was' if len(hit) == 1 else 'were'} preempted, and {len(differ)} of "
    f"{len(right.names)} answers differ. Whatever was thrown away was sampled once more, and greedy sampling "
    f"finds the same tokens again: {sampled} tokens were sampled for answers of {answered}. "
    f"Whoever read along on a screen got {sampled - answered} tokens twice.",
)
here.claim(
    right.totals.num_preemptions > 0 and not differ and sampled > answered,
    "So the line *each request got the same tokens* holds, and the program is wrong.",
)

# %% [markdown]
# ## The idea
#
# Do not ask for answers that happen to be equal. Say what must hold of *every* input, and then search for an
# input that breaks it.

# %% tags=["hide-input"]
here.term(
    "property",
    "a sentence that must hold for every input, such as: each request samples the tokens it would get "
    "alone, each once. With a way to search for an input that breaks it, it is called a theorem here.",
)
here.term(
    "oracle",
    "something that knows the right answer and is too simple to be wrong in the same way: one request, "
    "alone, with no batch and no cache.",
)
here.term(
    "shrinking",
    "making an input that fails smaller, for as long as it still fails, so that little is left to look at.",
)

# %% [markdown]
# The search is that of the library Hypothesis. It draws examples at random, and tinycb's own rules put them
# where mistakes live: lengths next to a block's border, a cache that just fits, prompts that share their
# beginning, requests that are given up half-way.
#
# ## The code
#
# A theorem about the scheduler is a law that watches an engine. This one adds up what each request sampled,
# and holds it against the same request alone:

# %% tags=["hide-input"]
here.show_source("tinycb.proofs.laws:SameTokensAsAlone")

# %% [markdown]
# No model runs in it. The next token is a checksum of all tokens before it, so that it is wrong as soon as
# any of them is, and an example takes milliseconds:

# %% tags=["hide-input"]
here.show_source("tinycb.proofs.serving_run:next_token")

# %% [markdown]
# And a kernel's oracle is attention of one request in a loop that knows no batch, no block and no tile:

# %% tags=["hide-input"]
here.show_source("tinycb.proofs.oracle:attend_alone", "for i in range(q_len)", "return out")

# %% [markdown]
# ## The search
#
# First the program as it is:

# %%
from tinycb.proofs import find_theorem

theorem = find_theorem("scheduler", "same_tokens_as_alone")
held = theorem.verdict("chunked")

# %% tags=["hide-input"]
if not held.holds:
    raise held.failure
here.say(f"It held on {held.examples} workloads. Now plant the fault, and search again.")

# %%
with planted("recompute_forgets_the_output"):
    first = theorem.verdict("chunked", shrink=False)
    smallest = theorem.verdict("chunked")
if smallest.holds:
    raise AssertionError("the theorem holds although the fault is planted")

# %% tags=["hide-input"]
numbers = ["one", "two", "three", "more than three"]
sizes = here.predict(
    f"Example number {first.needed} failed. It has {len(first.example.workload.arrivals)} requests, in a "
    f"cache of {first.example.config.num_blocks} blocks. How many requests are left of it after shrinking?",
    numbers,
)

# %% tags=["hide-input"]


def rows_of(example):
    """What there is to an example, as numbers."""
    arrivals = example.workload.arrivals
    return [
        len(arrivals),
        sum(arrival.prompt for arrival in arrivals),
        sum(arrival.max_tokens for arrival in arrivals),
        example.config.num_blocks,
        example.config.block_size,
    ]


labels = ["requests", "prompt tokens", "output tokens, at most", "blocks in the cache", "tokens in a block"]
here.table(
    ["", "the first that failed", "after shrinking"],
    list(zip(labels, rows_of(first.example), rows_of(smallest.example), strict=True)),
)
here.say(f"And what the law says of the smaller one: *{smallest.failure}*.")
left = len(smallest.example.workload.arrivals)
sizes.see(
    numbers[min(left, 4) - 1],
    "Shrinking takes requests out, makes prompts and answers shorter, and turns features off, and keeps each "
    "change with which the theorem still fails.",
)

# %% [markdown]
# Is it the smallest there is? Shrinking tries many changes, not all. We can try one that we understand: take
# each request out, and leave the cache as it is.

# %%
from dataclasses import replace


def fails(example):
    """Whether the theorem fails on this example."""
    try:
        theorem.check("chunked", example)
    except AssertionError:
        return True
    return False


small, without = smallest.example, {}
with planted("recompute_forgets_the_output"):
    for index in range(len(small.workload.arrivals)):
        fewer = list(small.workload.arrivals)
        del fewer[index]
        workload = replace(small.workload, arrivals=tuple(fewer))
        without[f"q{index}"] = bool(fewer) and fails(replace(small, workload=workload))

# %% tags=["hide-input"]
here.table(
    ["without", ""], [[name, "still fails" if is_wrong else "holds"] for name, is_wrong in without.items()]
)
needless = [name for name, is_wrong in without.items() if is_wrong]
if needless:
    here.say(
        f"Without {' or '.join(needless)} it would have been smaller yet. When shrinking takes a request "
        "out, the cache changes with it, for an example's cache is drawn to be tight for its requests; so "
        "this very change was not among those it tried. What it finds is small, not the smallest there is."
    )
else:
    here.say("Every request in it is needed.")

# %% [markdown]
# ## Look at it
#
# An example is plain data. It can be run again, and leaves a trace like any other run:

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

from tinycb.proofs.serving import write_trace

temporary = TemporaryDirectory(prefix="tinycb-")  # gone when this process ends
folder = Path(temporary.name)
trace = folder / "counterexample.jsonl"
with planted("recompute_forgets_the_output"):
    write_trace(theorem, "chunked", smallest.example, trace)
counterexample = here.recorded("counterexample", trace)
here.steps(counterexample)

# %% tags=["hide-input"]
from rich.text import Text

here.show(
    Text("tokens that each request runs in a step; P: preempted", style="dim"), Text(smallest.failure.picture)
)
loses = next(record for record in counterexample.records if record.preempted)
victim = loses.preempted[0]
given = [(r.step, r.sampled[victim]) for r in counterexample.records if victim in r.sampled]
told = [f"{token} in step {step}" for step, token in given]
here.say(f"""
    The whole mistake is in step {loses.step}: {victim} is preempted, and what it had sampled is gone from its
    answer. It comes back with nothing but its prompt, and samples the same again: {", ".join(told)}.
    The command at the end of this chapter opens these {len(counterexample.records)} steps in the visualizer.
    `tinycb check` writes such a trace for any scheduler that fails, yours too.
""")

# %% [markdown]
# ## Your own kernel
#
# The theorems ask no question about tinycb: they take any function with the right arguments. Here is a paged
# attention in plain torch. It gathers a request's keys through its block table, and then gives each new token
# its past.

# %%
import torch


def my_attention(q, k_cache, v_cache, block_table, query_start_loc, seq_lens, scale):
    out = torch.zeros_like(q)  # (T, H, D)
    block_size, kv_heads = k_cache.shape[1:3]
    group = q.shape[1] // kv_heads
    for r, seq_len in enumerate(seq_lens.tolist()):
        begin, end = query_start_loc[r : r + 2].tolist()
        positions = torch.arange(seq_len)
        blocks, offsets = block_table[r, positions // block_size].long(), positions % block_size
        keys = k_cache[blocks, offsets].repeat_interleave(group, dim=1)  # (seq_len, H, D)
        values = v_cache[blocks, offsets].repeat_interleave(group, dim=1)
        for row in range(begin, end):
            seen = row - begin + 1
            scores = torch.einsum("hd,khd->hk", q[row], keys[:seen]) * scale  # (H, seen)
            out[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen])
    return out


# %% [markdown]
# Beside tinycb's own kernel, on whole prompts, which is how one would try it:

# %%
from tinycb.proofs.draw import arguments, draw
from tinycb.proofs.strategies import KVLayout, RaggedBatch
from tinycb_kernels import paged_attention

prompts = ((9, 9), (5, 5), (12, 12))  # (new tokens, tokens in all) of each request
batch = RaggedBatch(prompts, heads=4, kv_heads=2, layout=KVLayout(shuffle=1))
tensors = arguments("paged", draw(batch))
ours = paged_attention(**tensors, scale=0.25)
distance = (my_attention(**tensors, scale=0.25) - ours).abs().max()

# %% tags=["hide-input"]
here.claim(
    float(distance) < 1e-5, f"The largest difference is {float(distance):.1g}: rounding. It looks right."
)

# %% [markdown]
# Now the theorems, as you would ask them: put the function into a file, and name it to `tinycb check`.

# %%
import inspect
import subprocess
import sys

source = "import torch\n\n\n" + inspect.getsource(my_attention)
(folder / "mine.py").write_text(source, encoding="utf-8")
command = "check paged mine.py:my_attention --only a_query_sees_exactly_its_own_past"
run = [sys.executable, "-m", "tinycb", *command.split()]
checked = subprocess.run(run, cwd=folder, capture_output=True, text=True)

# %% tags=["hide-input"]
here.show(Text(f"$ tinycb {command}", style="bold"), Text(checked.stdout.rstrip() or checked.stderr))
here.claim(
    checked.returncode == 1,
    "The picture is of one query: the keys that it *should* see and those that it *did*. `seen` counts the "
    "request's new tokens, as if there were no old ones. In a whole prompt there are none. But in a decode, "
    "and in every chunk except the first, the query sees the beginning of its past instead of all of it: "
    "the alignment of chapter 5, at the wrong corner.",
)

# %% [markdown]
# The two commands at the end of the output try that example again after a correction. The second one is a
# test file to keep.
#
# ## What it gained
#
# Plant each of the scheduler's faults in turn. Do the answers of this chapter's prompts notice it? Does its
# theorem?

# %%
from tinycb import SamplingParams


def answers():
    """The answers to the chapter's prompts, as token ids."""
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in MAX_TOKENS]
    prompts = [here.encode(text) for text in PROMPTS]
    outputs = here.engine(**TIGHT).generate(prompts, params)
    return [output.token_ids for output in outputs]


def noticed_by_answers():
    """Whether they differ from the right ones, or the engine fails."""
    try:
        return answers() != expected
    except Exception:
        return True


expected = answers()
rows = []
for name, fault in FAULTS.items():
    if fault.module.startswith("tinycb.scheduling"):
        with planted(name):
            by_answers = noticed_by_answers()
            about = find_theorem(fault.about, fault.theorem)
            verdict = about.verdict("chunked", shrink=False)
        rows.append((fault, by_answers, verdict))

# %% tags=["hide-input"]
import textwrap

here.table(
    ["planted", "answers", "theorem that fails", "example"],
    [
        [
            textwrap.fill(fault.covers, 26),
            "differ" if by_answers else "equal",
            "none" if verdict.holds else fault.theorem,
            "-" if verdict.holds else verdict.needed,
        ]
        for fault, by_answers, verdict in rows
    ],
)
by_answers, by_theorems = sum(row[1] for row in rows), sum(not row[2].holds for row in rows)
here.claim(
    by_theorems == len(rows) > by_answers, "Every fault is found by its theorem. The answers miss some."
)
here.gain(f"faults noticed, of {len(rows)}", by_answers, by_theorems, "faults")

# %% [markdown]
# That is also what the list of faults is for: a theorem that finds none of them would prove nothing, and
# `tinycb check --planted` prints who finds which, kernels included.
#
# ## What it leaves open

# %% tags=["hide-input"]
lengths = {"A": (40, 12), "B": (24, 6), "C": (9, 3), "D": (33, 9)}
policies = ("static", "continuous", "chunked")
runs = [
    here.script(name, lengths, batching=name, max_num_seqs=3, max_num_batched_tokens=32) for name in policies
]
held = [theorem.verdict(name, max_examples=25).holds for name in policies]
here.table(
    ["", *policies],
    [
        [theorem.name, *("holds" if one else "fails" for one in held)],
        ["steps for the same four requests", *(len(run.records) for run in runs)],
    ],
)
here.claim(
    all(held) and len({len(run.records) for run in runs}) > 1,
    "A property says what must never happen. It does not say which of several right choices a scheduler "
    "makes: all three are right here, and they take different steps. Whether ours are the choices that a "
    "production server makes is another question, and the last chapter's.",
)

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("11_shrink")
here.exercise("11_kernel")

# %% [markdown]
# ## In vLLM
#
# What must hold at every step stands in vLLM's own code as well, as assertions.

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler._preempt_request",
    "Where the fault of this chapter would stand: `num_computed_tokens` goes to zero, the tokens stay.",
)
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.schedule",
    "Before it returns, it asserts that the budget and the number of running requests were kept: "
    "two of our theorems, checked while it serves.",
)
here.vllm(
    "vllm/envs.py",
    "VLLM_BATCH_INVARIANT",
    "A switch for the property that a request's numbers do not depend on its company, to the last bit.",
)

# %% tags=["hide-input"]
here.finish(
    counterexample,
    "[chapter 12](12_to_vllm.py): the same requests through vLLM's scheduler, decision by decision; and "
    "[`docs/proofs.md`](../docs/proofs.md), which lists every theorem.",
)
