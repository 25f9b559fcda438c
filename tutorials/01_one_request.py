# %% [markdown]
# # 1. One request
#
# Somebody asks a question, and a model answers it word by word. Before we serve many people at once, we look
# closely at one: what the model computes for each word, what of it is the same as before, and what we can
# keep so that it need not be computed again.

# %%
from tinycb.learn import chapter

here = chapter(1)

# %% [markdown]
# ## What goes in, and what comes out
#
# A model knows no letters. It knows a fixed list of pieces of text, and a text is a list of their numbers.

# %% tags=["hide-input"]
here.term(
    "token",
    "a piece of text that the model knows by a number: a word, a part of one, or, in the tiny model, a byte.",
)

# %%
TEXT = "The sky is blue because"
prompt = here.encode(TEXT)

# %% tags=["hide-input"]
tokenizer, shape = here.model.tokenizer, here.model.config


def piece(token_id):
    """A token's text, made visible: a space is an open box, a line break its escape."""
    return repr(tokenizer.token_text(token_id))[1:-1].replace(" ", "␣")


here.table(
    ["place", "number", "text"],
    [[i, token_id, piece(token_id)] for i, token_id in enumerate(prompt)][:8],
    f"{TEXT!r} is {len(prompt)} tokens for {here.model_name}, which knows {shape.vocab_size:,}"
    + (". The first of them:" if len(prompt) > 8 else ":"),
)

# %% [markdown]
# One pass of these numbers through all layers, a *forward*, gives a score to every token that the model
# knows: how well would it come next? Let transformers, the library that most people know, do it.
# `here.reference` is its `LlamaForCausalLM`.

# %%
import torch

reference = here.reference
with torch.inference_mode():
    scores = reference(torch.tensor([prompt], device=reference.device)).logits[0, -1]  # (V,)
best = scores.topk(5)

# %% tags=["hide-input"]
here.table(
    ["number", "text", "score"],
    [
        [i, piece(i), f"{value:.2f}"]
        for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ],
    f"the best five of {len(scores):,}, after {TEXT!r}",
)
here.term("logits", "the scores that a forward gives to all tokens, for what may come next.")
here.term(
    "greedy",
    "always taking the token with the highest score. Nothing is drawn at random, so two programs that "
    "compute the same must say the same, and we can hold them against each other.",
)

# %% [markdown]
# Here it matters little what the model says, as long as it is always the same thing: this course is about
# *how* it is computed.

# %% [markdown]
# ## The plainest loop
#
# One forward gives one token. For a sentence we put it behind the text, and ask again. The model has no
# memory, so each time it gets the whole text.

# %%
NEW_TOKENS = 32

# %% tags=["hide-input"]
question = here.predict(
    f"The prompt has {len(prompt)} tokens, and we want {NEW_TOKENS} more. A forward computes one row of "
    "numbers for each token that it is given. How many rows will the loop below have computed at its end?"
)

# %%
text, plain_rows = list(prompt), 0
with torch.inference_mode():
    for _ in range(NEW_TOKENS):
        scores = reference(torch.tensor([text], device=reference.device), use_cache=False).logits[0, -1]
        plain_rows += len(text)
        text.append(int(scores.argmax()))
expected = text[len(prompt) :]

# %% tags=["hide-input"]
from rich.text import Text

from tinycb.view.signs import printable

here.show(Text(printable(here.decode(prompt)), style="bold") + Text(printable(here.decode(expected))))
if here.fast:
    here.say("(That was the tiny model. Its weights are random numbers, and so is what it says.)")
question.see(
    plain_rows,
    f"{len(prompt)} rows for the first new token, {len(prompt) + 1} for the second, and so on up to "
    f"{len(text) - 1}. The text that came of it has {len(text)} tokens, so on average each of them was "
    f"computed {plain_rows / len(text):.0f} times.",
)
here.say(f"""
    Twice as long an answer would not cost twice as much: {2 * NEW_TOKENS} new tokens are
    {2 * NEW_TOKENS * len(prompt) + NEW_TOKENS * (2 * NEW_TOKENS - 1):,} rows. The work grows with the
    square of the length. That is the limit of the plain loop.
""")

# %% [markdown]
# ## Is it the same again?
#
# The loop computes the first words of the text over and over. That is a waste only if the result is the same
# each time. So let us look.

# %%
same = here.predict(
    "A forward makes a row of numbers for each token, layer after layer. Now a token is put behind the text. "
    "Which of the old tokens' rows change?",
    [
        "all of them: in attention, every token sees every other",
        "only those of the last token, which has got a neighbour",
        "none of them",
    ],
)


# %%
def rows_of(ids):
    """What each token is before the first layer and after each: (layers + 1, tokens, E)."""
    output = reference(torch.tensor([ids], device=reference.device), output_hidden_states=True)
    return torch.cat(output.hidden_states)


with torch.inference_mode():
    longer = rows_of(text)
    shorter = rows_of(text[:-1])
difference = (longer[:, :-1] - shorter).abs().amax(dim=(0, 2))  # (tokens,): the largest of each token

# %% tags=["hide-input"]
with torch.inference_mode():
    other_first = rows_of([text[1], *text[1:-1]])
size = shorter.abs().max().item()
changed = (difference > 1e-4 * size).tolist()
if not any(changed):
    answer = same.choices[2]
elif changed[-1] and not any(changed[:-1]):
    answer = same.choices[1]
else:
    answer = same.choices[0]
largest = difference.max().item()
rounding = (
    f"is {largest:.0e}, where the numbers themselves go up to {size:.3g}: rounding" if largest else "is 0"
)
control = (other_first - shorter).abs().amax(dim=(0, 2))[1:]
same.see(
    answer,
    f"Over {len(shorter)} sets of rows and {len(difference)} old tokens, the largest difference "
    f"{rounding}. To see that the comparison can fail: with another first token, each of the {len(control)} "
    f"tokens behind it changed, by {control.min().item():.1g} at least.",
)

# %% [markdown]
# ## The idea
#
# Attention in such a model is *causal*: a token sees those before it and itself, and never one behind it. So
# what a token has become in some layer is settled for good, whatever follows.
#
# And what does a newcomer need of those before it? In every layer it asks with its own query, compares it
# with the *key* of each earlier token, and takes a share of its *value*. Keys and values, of all layers, and
# nothing else: an old query has been answered, and an old row has done its work. So we keep them.

# %% tags=["hide-input"]
here.term(
    "KV cache",
    "memory that holds the keys and values of all tokens of a text that have been computed, for every layer.",
)
here.term(
    "prefill", "to compute the tokens of a prompt, many in one forward, and fill the cache with theirs."
)
here.term("decode", "to compute one token, the newest, with everything before it read from the cache.")

# %% [markdown]
# ## The code
#
# This is the heart of tinycb's Llama. Look at what goes *across* tokens: the products, the norms and the
# feed-forward part take each row by itself. Only `attention` has tokens look at each other.
#
# The letters behind a line are the shape of what it makes: T rows of E numbers each; H heads of queries and
# KH heads of keys and values, of D numbers each; and I numbers in the middle of the feed-forward part. To
# save memory, several heads of queries share one of keys and values, a *KV head*.

# %% tags=["hide-input"]
here.show_source("tinycb.model.llama:Llama", "for index, layer", "x = layer.down")

# %% [markdown]
# And before anybody looks at anything, `attention` puts the new keys and values into the cache. After that,
# it reads all of them from there, old ones and new ones alike. (`slot_mapping` says where in the cache; that
# is the story of chapter 6.)

# %% tags=["hide-input"]
here.show_source("tinycb.model.attention:attention", "write_kv(", "write_kv(")

# %% [markdown]
# How does a forward know what is new? Each request has two numbers: how many tokens it has, and how many of
# them are computed. The difference is what has to run. For a fresh prompt that is all of it; when one token
# has come out and was put behind the text, it is just that one. Prefill and decode are the same rule.

# %% tags=["hide-input"]
here.show_source(
    "tinycb.scheduling.continuous:ContinuousScheduler.schedule",
    "num_tokens = request.num_tokens",
    "num_tokens = request.num_tokens",
)
here.show_source("tinycb.engine:Engine._update", "for request in output.requests", "num_computed_tokens +=")
here.show_source(
    "tinycb.engine:Engine._update", "request.token_ids.append(token)", "request.token_ids.append(token)"
)

# %% [markdown]
# ## The run
#
# The same prompt on tinycb. A request gets a letter; the only one is A. Each column of the picture is a step:
# one forward, and one new token at its end.

# %%
cached = here.serve("cached", [TEXT], NEW_TOKENS, ignore_eos=True, times=2, batching="continuous")
here.timeline(cached)

# %% tags=["hide-input"]
few = [cached.records[i] for i in (0, 1, 2, len(cached.records) - 1)]
here.table(
    ["step", "tokens run", "found in the cache", "seen by the last", "token that came out"],
    [
        [
            record.step,
            record.scheduled["A"],
            record.num_computed["A"],
            record.scheduled["A"] + record.num_computed["A"],
            piece(record.sampled["A"]),
        ]
        for record in few
    ],
    "the first three steps, and the last",
)
here.claim(
    all(record.scheduled["A"] == 1 for record in cached.records[1:]),
    "The prompt runs once. After it, every forward has a single row, and still each token sees all those "
    "before it.",
)

# %% [markdown]
# ## Token for token
#
# That was quick to say. Is it true? Here are both answers side by side: the plain loop of transformers, which
# computes everything each time, and tinycb, which keeps what it has. With them, how close a call each was:
# by how much the best score was ahead of the second.

# %% tags=["hide-input"]
with torch.inference_mode():
    scores = reference(torch.tensor([text[:-1]], device=reference.device)).logits[
        0, len(prompt) - 1 :
    ]  # (N, V)
first_two = scores.topk(2).values  # (N, 2)
ahead = (first_two[:, 0] - first_two[:, 1]).tolist()
ours = cached["A"].token_ids
equal = [a == b for a, b in zip(expected, ours, strict=True)]
here.table(
    ["", "transformers", "tinycb", "text", "equal", "ahead by"],
    [
        [i + 1, expected[i], ours[i], piece(ours[i]), "yes" if equal[i] else "no", f"{ahead[i]:.2g}"]
        for i in range(8)
    ],
    "the first eight",
)
here.claim(
    len(ours) == len(expected) and all(equal),
    f"{sum(equal)} of {len(expected)} tokens are equal. The closest call was token "
    f"{ahead.index(min(ahead)) + 1}, where the best score was ahead by {min(ahead):.2g}, of logits "
    f"that go up to {scores.max().item():.3g}.",
)

# %% [markdown]
# ## What it gained
#
# To measure it, let tinycb play the plain loop too: every token is then a request of its own, which brings
# the whole text so far, wants one token, and is forgotten.

# %%
texts = [prompt + ours[:i] for i in range(NEW_TOKENS)]
forgetful = here.serve("forgetful", texts, 1, max_num_seqs=1, ignore_eos=True, times=2, batching="continuous")

# %% tags=["hide-input"]
here.claim(
    [token for output in forgetful.outputs for token in output.token_ids] == ours,
    "It says the same once more.",
)
rows_before, rows_after = forgetful.totals.forward_tokens, cached.totals.forward_tokens
speed = here.predict(
    f"The loop without a memory computed {rows_before} rows, the one with it {rows_after}: "
    f"{rows_before / rows_after:.0f} times fewer. And how many times faster is it?",
    ["much less than that", "about as many times", "much more than that"],
)


# %% tags=["hide-input"]
def milliseconds(record):
    return 1000 * (record.time_end - record.time_start)


ratio = forgetful.seconds / cached.seconds
share = ratio / (rows_before / rows_after)
picked = [1, 2, *(i for i in (8, 16, 24, 32) if i <= NEW_TOKENS)]
here.table(
    ["new token", "rows without", "rows with", "ms without", "ms with"],
    [
        [
            i,
            len(texts[i - 1]),
            cached.records[i - 1].scheduled["A"],
            f"{milliseconds(forgetful.records[i - 1]):.1f}",
            f"{milliseconds(cached.records[i - 1]):.1f}",
        ]
        for i in picked
    ],
    "without a cache and with it; milliseconds are measured now, on this machine",
)
speed.see(
    speed.choices[0] if share < 2 / 3 else speed.choices[1] if share < 3 / 2 else speed.choices[2],
    f"It took {forgetful.seconds:.2f} seconds without a cache, and {cached.seconds:.2f} with it: "
    f"{ratio:.1f} times.",
)
here.gain("rows computed for the same answer", rows_before, rows_after, "rows")
here.gain("time for the same answer", forgetful.seconds, cached.seconds, "s", measured=True)

# %% tags=["hide-input"]
from tinycb.memory import itemsize, kv_bytes_per_token, weight_bytes

dtype = str(here.model.model.dtype)
per_token = kv_bytes_per_token(shape.num_layers, shape.num_kv_heads, shape.head_dim, dtype)
held = (len(text) - 1) * per_token
weights = weight_bytes(shape, dtype)
one_row = min(milliseconds(record) for record in cached.records[1:])
most = max(forgetful.records, key=lambda record: sum(record.scheduled.values()))
most_rows = sum(most.scheduled.values())
here.say(f"""
    ## What it costs, and what it leaves open

    *Memory.* A token now takes room: {shape.num_layers} layers × (key and value) × {shape.num_kv_heads}
    heads × {shape.head_dim} numbers × {itemsize(dtype)} bytes = {per_token:,} bytes. This short text held
    {held / 1e6:.2f} MB. Who gets how much of that memory, and when, is what half of this course is about.

    *A forward of one row.* Each forward reads all weights of the model, {weights / 1e6:,.1f} MB, be it for
    one row or for many. Measured here and now: one row in {one_row:.1f} ms, {most_rows} rows in
    {milliseconds(most):.1f} ms. A row that runs alone costs {one_row:.1f} ms; among {most_rows},
    {milliseconds(most) / most_rows:.2f} ms. The cache has made our answer cheap, and every single row of it
    dear.

    So there is room beside our lone row, for other people's rows.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("01_computed_rows")
here.exercise("01_with_cache")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.schedule",
    "Its first comment says it: no decoding phase and no prefill phase, only `num_computed_tokens`, which "
    "chases the number of tokens.",
)
here.vllm(
    "vllm/model_executor/models/llama.py",
    "LlamaAttention.forward",
    "The same lines as our layer's first half; `self.attn` knows the cache.",
)
here.vllm(
    "vllm/v1/attention/backends/flash_attn.py",
    "FlashAttentionImpl.do_kv_cache_update",
    "New keys and values go into the cache before attention reads it.",
)

# %% tags=["hide-input"]
here.finish(
    cached,
    "[chapter 2](02_static_batching.py): several requests in one forward, and what they cost each other; "
    "[`tinycb/request.py`](../tinycb/request.py) has the two numbers, and "
    "[`tinycb/model/llama.py`](../tinycb/model/llama.py) is the whole model.",
)
