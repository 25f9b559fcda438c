# %% [markdown]
# # 4. Packing
#
# In the last chapter, one forward ran the whole prompt of a newcomer and single tokens of others. We took it
# for granted that a model can do that. It can, and for a simple reason: nearly nothing in it cares whose
# token a row is. What does care gets told.

# %%
from tinycb.learn import chapter

here = chapter(4)

# %% [markdown]
# ## The limit of the last chapter
#
# Six people, four places, and the scheduler of the last chapter. We look at a step in which somebody comes in
# while others decode.

# %%
PROMPTS = [
    "Why is the sky blue?",
    "Say hello.",
    "Tell me about the moon.",
    "Name three rivers.",
    "What is the capital of Italy?",
    "Write a line about rain.",
]
MAX_TOKENS = [20, 4, 14, 9, 8, 12]

packed = here.serve("packed", PROMPTS, MAX_TOKENS, chat=True, batching="continuous", attention="mask")
mixed = next(record for record in packed.records if record.step > 0 and record.admitted)

# %% tags=["hide-input"]
told = ", ".join(f"{name} {count}" for name, count in mixed.scheduled.items())
tokens = sum(mixed.scheduled.values())
table_rows = here.predict(
    f"Step {mixed.step} runs these tokens: {told}; {tokens} together. How many rows would the forward "
    "compute if it were a table, filled up to the longest, as in chapter 2?"
)

# %% tags=["hide-input"]
in_table = [len(record.scheduled) * max(record.scheduled.values()) for record in packed.records]
table_rows.see(
    in_table[mixed.step],
    f"{len(mixed.scheduled)} rows of {max(mixed.scheduled.values())}, for {tokens} tokens: "
    f"{1 - tokens / in_table[mixed.step]:.0%} of it padding. Over the whole run it would be {sum(in_table)} "
    f"rows for {packed.totals.scheduled_tokens} tokens. With a table, choosing anew before every forward "
    "would make things worse.",
)

# %% [markdown]
# ## The idea
#
# Forget the table. Put all tokens of the step into one row, one request behind the other, with nothing
# between them.

# %% tags=["hide-input"]
here.term(
    "packed row", "the tokens of all requests of one step, one behind the other: T of them, and no padding."
)

# %%
here.row(packed, mixed.step)

# %% [markdown]
# Now go through the model, as you saw it in chapter 1, and ask each line whether it minds. Embedding, norms,
# the products for queries, keys and values, the product after attention, the feed-forward part: each takes a
# row of numbers and makes another one of it, and never looks to the side. They do not notice. There are two
# that do: the *rotation* of queries and keys, and *attention* itself.

# %% [markdown]
# ## One projection for all
#
# First, that the others do not notice. Three texts, and the product that makes their queries, keys and values
# in the first layer: once for each text alone, and once for all of them as one row.

# %%
import torch
import torch.nn.functional as F

TEXTS = ["Name a fruit.", "Say hello.", "Why?"]
ids = [here.encode(text) for text in TEXTS]
row = [token for one in ids for token in one]  # (T,)
llama = here.model.model
layer = llama.layers[0]


@torch.inference_mode()
def project(token_ids):
    """Embedding, norm, and one product: (T,) → (T, (H + 2·KH)·D)."""
    x = F.embedding(torch.tensor(token_ids, device=llama.device), llama.embed)
    return layer.qkv(x.to(llama.compute_dtype), norm=layer.input_norm)


together = project(row)
apart = torch.cat([project(one) for one in ids])

# %% tags=["hide-input"]
import time


def fastest(work):
    """Seconds of the fastest of many."""
    taken = []
    for _ in range(30):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


off = (together - apart).abs().max().item()
here.claim(
    off <= 1e-5 * apart.abs().max().item(),
    f"{len(row)} rows of {together.shape[1]} numbers; the largest difference is {off:.0e}.",
)
here.gain(
    "one product of all rows, instead of one a request",
    1000 * fastest(lambda: [project(one) for one in ids]),
    1000 * fastest(lambda: project(row)),
    "ms",
    measured=True,
)

# %% [markdown]
# ## Where a token stands
#
# A Llama learns the order of words from a rotation: the query and the key of a token are turned by an angle
# that grows with its place in the text. Not with its place in our row; the model has never heard of that.

# %% tags=["hide-input"]
here.term(
    "position",
    "a token's place in the text of its own request, counted from 0, whatever was computed in which step.",
)
arrays, spans = mixed.packed, []
for r, name in enumerate(arrays.request_ids):
    start, end = arrays.query_start_loc[r], arrays.query_start_loc[r + 1]
    first, last = arrays.positions[start], arrays.positions[end - 1]
    rows = f"{start}" if end - start == 1 else f"{start} … {end - 1}"
    spans.append([name, rows, f"{first}" if first == last else f"{first} … {last}"])
here.table(["request", "places in the row", "positions"], spans, f"step {mixed.step}, from its arrays")

# %% [markdown]
# A request that decodes goes on where it was; the newcomer begins with zero. In the code it is one number,
# `starts`: how much of the request was computed before.

# %% tags=["hide-input"]
here.show_source("tinycb.packing:pack", "# The last token of a row", "positions = ")

# %% [markdown]
# Is it that important? With transformers' model we can choose the positions ourselves. A is left out, and B,
# the second text, gets the places that it had in the row.

# %% tags=["hide-input"]
shifted = here.predict(
    f"{len(ids[1])} tokens of B stand behind {len(ids[0])} of A. Suppose somebody gave places in the row as "
    f"positions: B would begin at {len(ids[0])}, and not at 0. What happens to the logits after its last "
    "token?",
    ["they become those of another text", "nothing, but for rounding"],
)


# %%
@torch.inference_mode()
def logits_of(text, positions):
    """After the last token: (V,)."""
    text, positions = (torch.tensor([x], device=here.reference.device) for x in (text, positions))
    return here.reference(text, position_ids=positions, use_cache=False).logits[0, -1]


B, behind = ids[1], len(ids[0])
own = list(range(len(B)))  # 0, 1, 2, …
in_the_row = [behind + i for i in own]
fresh, moved = logits_of(B, own), logits_of(B, in_the_row)

# A step later: one more token of B. In the new row, of one token a request, it stands at place 1.
longer = [*B, int(fresh.argmax())]
next_right, next_moved = logits_of(longer, [*own, len(B)]), logits_of(longer, [*in_the_row, 1])

# %% tags=["hide-input"]
size = fresh.abs().max().item()
gap, later = (fresh - moved).abs().max().item(), (next_right - next_moved).abs().max().item()
shifted.see(
    shifted.choices[0 if gap > 1e-4 * size else 1],
    f"The largest difference is {gap:.0e}, of logits up to {size:.3g}. Of two turned rows, a query and a "
    "key, only the difference of their positions is felt, and within a text that is the same wherever it "
    "begins.",
)
here.claim(
    later > 1e-2 * size,
    f"So the mistake would not be seen, as long as prompts are fresh. Then comes the next step. B has one "
    f"token to run, at place 1 of a new row, and its keys of before were turned by the old places. Now the "
    f"logits are off by {later:.2g}. A position is a token's own, for good.",
)

# %% [markdown]
# ## Who may see whom
#
# Now attention. In one row of all tokens, a token finds everybody's keys before it. It may look at those of
# its own request, up to itself. So write that down, for each pair: may row `i` look at key `j`?

# %%
owner = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])  # (T,): 4 tokens of A, 2 of B, 3 of C
place = torch.arange(len(owner))  # (T,)
same_request = owner[:, None] == owner[None, :]  # (T, T)
not_later = place[None, :] <= place[:, None]  # (T, T)
may_look = same_request & not_later
M = torch.zeros(len(owner), len(owner)).masked_fill(~may_look, -torch.inf)

# %% tags=["hide-input"]
from rich.text import Text

from tinycb.view.signs import colour


def drawn(matrix, owners):
    """A matrix of 0 and -inf, a letter for each row and column."""
    letters = ["ABC"[r] for r in owners.tolist()]
    lines = [Text("      ").append_text(Text("").join(Text(f"{letter:>5}") for letter in letters))]
    for index, (letter, entries) in enumerate(zip(letters, matrix.tolist(), strict=True)):
        line = Text(f"{letter} {index:>2}  ")
        for entry, other in zip(entries, owners.tolist(), strict=True):
            line.append(f"{entry:>5.0f}", style=f"bold {colour(other)}" if entry == 0 else "dim")
        lines.append(line)
    return lines


here.show(*drawn(M, owner))
here.term(
    "block-diagonal mask",
    "a matrix with an entry for each pair of a row and a key: 0 where the row may look at the key, and minus "
    "infinity where not. What is allowed lies in blocks along the diagonal, one a request, and, as a token "
    "sees nothing later, each block is a triangle.",
)

# %% [markdown]
# The matrix is added to the scores. Minus infinity stays what it is, and after the softmax its weight is
# zero. tinycb keeps it as True and False, and builds it from two lists: where each request begins among the
# rows, and where among the keys. Here the two are the same.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.mask:causal_mask", "request_of_q = request", "return same_request")
here.show_source("tinycb_kernels.mask:attend", "scores = q", "weights = ")

# %%
from tinycb_kernels import causal_mask

begins = torch.tensor([0, 4, 6, 9], dtype=torch.int32)
ours = causal_mask(begins, begins)

# %% tags=["hide-input"]
here.claim(
    bool((ours == may_look).all()),
    f"Entry for entry it is the matrix above: {int(ours.sum())} of {ours.numel()} are allowed.",
)

# %% [markdown]
# ## Is it the same as being alone?
#
# Queries, keys and values of the three texts, as the first layer of the model makes them. First attention
# over the packed row, with the mask. Then for each text alone, with nobody else there at all. And, as a
# third, the row with half of the mask: no token looks at a later one, and nobody asks whose it is.

# %% tags=["hide-input"]
careless = here.predict(
    "With that half of the mask, whose results are wrong?",
    ["nobody's: later tokens are hidden", "those of B and C", "everybody's"],
)

# %%
from tinycb_kernels import mask_attention

config = here.model.config
H, KH, D = config.num_heads, config.num_kv_heads, config.head_dim
positions = torch.tensor([i for one in ids for i in range(len(one))], device=llama.device)


def turn(x):
    """The rotation of (T, heads, D): each pair of numbers is turned at a speed of its own."""
    pairs = torch.arange(D // 2, device=x.device)
    speed = config.rope["rope_theta"] ** (-2 * pairs / D)  # (D/2,)
    angle = (positions[:, None] * speed)[:, None]  # (T, 1, D/2)
    left, right = x.float().chunk(2, dim=2)
    turned = (left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin())
    return torch.cat(turned, dim=2)


q, k, v = together.unflatten(1, (H + 2 * KH, D)).split([H, KH, KH], dim=1)
q, k, v = turn(q), turn(k), v.float()  # (T, H, D), (T, KH, D), (T, KH, D)

lengths = torch.tensor([0, *map(len, ids)], device=llama.device)
ends = lengths.cumsum(0).int()  # (R+1,)
mask = causal_mask(ends, ends)  # (T, T)
triangle = torch.ones_like(mask).tril()  # (T, T)
in_row = mask_attention(q, k, v, mask)
without = mask_attention(q, k, v, triangle)
alone = []
for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
    corner = triangle[: end - begin, : end - begin]
    alone.append(mask_attention(q[begin:end], k[begin:end], v[begin:end], corner))

# %% tags=["hide-input"]
largest = max(one.abs().max().item() for one in alone)
errors = []
for r, one in enumerate(alone):
    part = slice(int(ends[r]), int(ends[r + 1]))
    errors.append([(got[part] - one).abs().max().item() for got in (in_row, without)])
here.table(
    ["request", "tokens", "off with the mask", "off with the half"],
    [
        ["ABC"[r], len(ids[r]), f"{with_mask:.0e}", f"{half:.2g}"]
        for r, (with_mask, half) in enumerate(errors)
    ],
    f"largest difference from attention alone, of results up to {largest:.2g}",
)
spoiled = [half > 1e-4 * largest for _, half in errors]
careless.see(
    careless.choices[2 if spoiled[0] else 1 if all(spoiled[1:]) else 0],
    "Before the tokens of A there is nobody. B looks at A, and C at both: nothing fails, and the answers are "
    "those of a model that was fed a mixture of three texts.",
)
here.claim(
    all(with_mask <= 1e-5 * largest for with_mask, _ in errors),
    "With the whole mask, every request gets what it would get alone.",
)

# %% [markdown]
# ## The run
#
# So much for one layer. Here are whole answers: the six people from the beginning, packed, and the same six
# one by one.

# %%
single = here.serve(
    "one by one", PROMPTS, MAX_TOKENS, chat=True, max_num_seqs=1, batching="continuous", attention="mask"
)
here.timeline(packed)
here.compare(single, packed, measures=("forwards", "rows", "padding", "time", "speed"))

# %% [markdown]
# And three short texts, so that their masks can be drawn. In the first step there is no past: T rows, T keys.

# %%
short = here.serve("short", TEXTS, 6, ignore_eos=True, batching="continuous", attention="mask")
here.panels(short, 0, "mask")

# %% [markdown]
# In the next, each runs one token, and looks back on keys that are in the cache. The matrix has T rows
# and S columns, S for all keys together, and the rule is the same.

# %%
here.panels(short, 1, "mask")

# %% [markdown]
# ## What it gained

# %% tags=["hide-input"]
here.gain(
    "rows of all forwards, filled up to the longest, and packed",
    sum(in_table),
    packed.totals.forward_tokens,
    "rows",
)
here.gain("forwards for the same answers", single.totals.forwards, packed.totals.forwards, "forwards")
here.gain(
    "output tokens a second",
    single.totals.tokens_per_second,
    packed.totals.tokens_per_second,
    "tokens/s",
    measured=True,
)

# %% [markdown]
# ## What it leaves open
#
# The mask says who may look. But the scores are computed for all pairs, those of strangers too, and then
# crossed out. Prompts of many people in one row: here is the matrix, really built.

# %%
EACH = 128  # tokens of every prompt
sizes = []
for requests in (1, 4, 16, 32):
    starts = torch.arange(requests + 1, dtype=torch.int32) * EACH
    matrix = causal_mask(starts, starts)
    sizes.append((requests, len(matrix), matrix.numel(), int(matrix.sum())))

# %% tags=["hide-input"]
here.table(
    ["prompts", "T", "entries, T × T", "allowed", "scores of one layer"],
    [
        [requests, t, f"{entries:,}", f"{allowed / entries:.1%}", f"{entries * H * 4 / 2**20:,.1f} MiB"]
        for requests, t, entries, allowed in sizes
    ],
    f"prompts of {EACH} tokens; scores for {H} heads, of 4 bytes each",
)
(_, small_t, small_entries, _), (most, t, entries, allowed) = sizes[0], sizes[-1]
here.say(f"""
    {most} prompts instead of one: {t // small_t} times the tokens, and {entries // small_entries:,} times the
    entries. Of {entries:,}, {entries - allowed:,} say *no*, and each was computed first, for each head, in
    each of {config.num_layers} layers. A row of 32,768 tokens would be a matrix of {32768**2:,}.

    Yet there is very little in it. Look at the drawing once more: each row allows one stretch, from the
    beginning of its request to itself. That takes two numbers, and not T.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("04_packed_row")
here.exercise("04_who_may_look")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/worker/gpu_model_runner.py",
    "GPUModelRunner._prepare_inputs",
    "The tokens of all requests as one row; positions are `num_computed_tokens` of the request, plus the "
    "place within what it runs now.",
)
here.vllm(
    "vllm/v1/attention/backends/flex_attention.py",
    "FlexAttentionMetadata.get_paged_mask_mod",
    "The same mask as a function of row and key: the same request, and `causal_mask_mod` on positions.",
)

# %% tags=["hide-input"]
here.finish(
    packed,
    "[chapter 5](05_offsets.py): two numbers instead of a row of the matrix; "
    "[`tinycb/packing.py`](../tinycb/packing.py) and "
    "[`kernels/tinycb_kernels/mask.py`](../kernels/tinycb_kernels/mask.py) are both short.",
)
