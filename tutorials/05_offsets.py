# %% [markdown]
# # 5. From the mask to offsets
#
# In the last chapter everybody's tokens became one row, and a matrix said who may look at whom. In this one
# the matrix goes. All that it says fits into a handful of numbers, and a kernel can work from those.

# %%
from tinycb.learn import chapter

here = chapter(5)

# %% [markdown]
# ## The limit of the last chapter
#
# Five people ask. One of them pastes a text first, as people do. We serve them with the matrix, and count.

# %%
TEXT = (
    "A lighthouse keeper writes down every ship that passes: its name, its flag, the hour, and the weather. "
    "In forty years he has filled nineteen books, and nobody has ever asked to read them. "
)
PROMPTS = [
    TEXT + "Who is this text about?",
    "Why is the sky blue?",
    "Name a fruit.",
    "Write one sentence about autumn.",
    "What is two plus two?",
]
MAX_TOKENS = [12, 24, 6, 16, 10]

masked = here.serve("mask", PROMPTS, MAX_TOKENS, chat=True, times=2, batching="continuous", attention="mask")
here.timeline(masked)


# %% tags=["hide-input"]
def shape(record):
    """T rows and S keys of a step."""
    return len(record.packed.token_ids), int(record.packed.seq_lens.sum())


def may_attend(record):
    """Pairs of a row and a key that the rule allows: row i of q sees seq - q + i + 1 keys."""
    counts = zip(record.scheduled.values(), record.packed.seq_lens.tolist(), strict=True)
    return sum(q * seq - q * (q - 1) // 2 for q, seq in counts)


largest = max(masked.records, key=lambda record: shape(record)[0])
rows, keys = shape(largest)
entries = sum(t * s for t, s in map(shape, masked.records))
used = sum(may_attend(record) for record in masked.records)
here.say(f"""
    Step {largest.step} is the largest: {rows} rows and {keys} keys, so a matrix of **{rows * keys:,}**
    entries, of which {may_attend(largest) / (rows * keys):.0%} say "may look". And these are short questions;
    the number grows with the square. In all {len(masked.records)} steps together, {entries:,} scores were
    computed and {1 - used / entries:.0%} of them were crossed out again.
""")

# %% [markdown]
# Most of the matrix says the same thing over and over: *not yours*. So look for a shorter way to say it.

# %%
LENGTHS = {"A": 4, "B": 2, "C": 3}
T = sum(LENGTHS.values())

numbers = here.predict(
    f"Three requests, A, B and C, come with {', '.join(map(str, LENGTHS.values()))} tokens: {T} rows, and a "
    f"matrix of {T * T} entries. How many numbers are enough to say the same?"
)

# %% [markdown]
# ## The idea
#
# Look along one row of the matrix. What it allows is never scattered: the keys that a token may see lie side
# by side. They begin where its request begins, and they end with the token itself. So two numbers, `kv_begin`
# and `kv_end`, say what a whole row of the matrix said.
#
# Even those two need not be stored. Whoever knows where each request begins can work them out.

# %% tags=["hide-input"]
here.term(
    "offsets",
    "where each request of a packed row begins and, as a last number, where the row ends: "
    "one number more than there are requests.",
)
here.term(
    "varlen",
    "attention over a packed row in which each request has its own length, told by offsets "
    "and not by a mask. The name is that of FlashAttention's functions.",
)

# %% [markdown]
# ## Nine tokens by hand
#
# The offsets are sums. Often they are called `seq_start_loc`; FlashAttention says `cu_seqlens_q`, for
# cumulative lengths; vLLM, and this project with it, says `query_start_loc`. To find whose a row is, search
# them: the request is the last one that does not begin after the row.

# %%
from itertools import accumulate

seq_start_loc = [0, *accumulate(LENGTHS.values())]


def find_request(row):
    """The number of the request that a row belongs to, by binary search."""
    low, high = 0, len(seq_start_loc) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if seq_start_loc[middle] <= row:
            low = middle
        else:
            high = middle
    return low


def kv_range(row):
    """The first key that a row sees, and the one after its last."""
    kv_begin = seq_start_loc[find_request(row)]
    kv_end = row + 1
    return kv_begin, kv_end


# %% tags=["hide-input"]
import torch

from tinycb_kernels.mask import causal_mask

names = list(LENGTHS)
lines, rebuilt = [], torch.zeros(T, T, dtype=torch.bool)
for row in range(T):
    r = find_request(row)
    kv_begin, kv_end = kv_range(row)
    rebuilt[row, kv_begin:kv_end] = True
    sees = " ".join("#" if kv_begin <= key < kv_end else "." for key in range(T))
    lines.append([f"{names[r]}{row - seq_start_loc[r]}", row, names[r], kv_begin, kv_end, sees])
header = " ".join(names[find_request(key)] for key in range(T))
here.say(f"`seq_start_loc` is `{seq_start_loc}`. From it alone, row by row:")
here.table(["token", "row", "find_request", "kv_begin", "kv_end", header], lines)
device = "cuda" if torch.cuda.is_available() else "cpu"  # where the kernels run
starts = torch.tensor(seq_start_loc, dtype=torch.int32, device=device)
here.claim(
    torch.equal(rebuilt, causal_mask(starts, starts).cpu()),
    "On the right is the matrix, drawn from nothing but those two numbers: a `#` where "
    "`kv_begin <= key < kv_end`. It is, entry for entry, the one that chapter 4 built.",
)

# %% tags=["hide-input"]
numbers.see(
    len(seq_start_loc),
    f"They are {seq_start_loc}: one more than there are requests, however long those are. The "
    f"{rows * keys:,} entries of step {largest.step} above become {len(largest.scheduled) + 1} numbers.",
)

# %% [markdown]
# And attention itself needs no matrix either. A row takes its own slice of the keys, and nothing is crossed
# out, because nothing foreign was ever looked at.

# %%
from tinycb_kernels import mask_attention

torch.manual_seed(0)
D = 16
q, k, v = torch.randn(3, T, 1, D).to(device)  # each (T, H, D), with a single head


def attend(row):
    """Attention for one row: the keys from kv_begin to kv_end, and no others."""
    kv_begin, kv_end = kv_range(row)
    scores = k[kv_begin:kv_end, 0] @ q[row, 0] * D**-0.5  # (keys,)
    return scores.softmax(dim=0) @ v[kv_begin:kv_end, 0]  # (D,)


by_hand = torch.stack([attend(row) for row in range(T)])[:, None]  # (T, H, D)
by_mask = mask_attention(q, k, v, causal_mask(starts, starts))

# %% tags=["hide-input"]
here.claim(
    torch.allclose(by_hand, by_mask, atol=1e-6),
    f"The largest difference between the two is {(by_hand - by_mask).abs().max():.0e}: rounding. By the "
    f"matrix, {T * T} scores were computed; by hand, {int(rebuilt.sum())}.",
)

# %% [markdown]
# ## When there is a past
#
# In the nine tokens everybody has as many keys as rows. As soon as somebody decodes, that is over: a single
# row, and all the keys since the prompt's first. So there are two lists of offsets, one for rows and one for
# keys. Here they are in a step of the real run in which a newcomer's prompt and single tokens go together.

# %% tags=["hide-input"]
mixed = next(record for record in masked.records if record.step > 0 and record.admitted)
batch = mixed.packed
key_starts = [0, *accumulate(batch.seq_lens.tolist())]
here.table(
    ["request", "rows", "query_start_loc", "keys", "cu_seqlens_k", "its last row sees"],
    [
        [
            name,
            mixed.scheduled[name],
            int(batch.query_start_loc[r]),
            int(batch.seq_lens[r]),
            key_starts[r],
            f"keys {key_starts[r]} to {key_starts[r + 1] - 1}",
        ]
        for r, name in enumerate(batch.request_ids)
    ]
    + [["end", "", int(batch.query_start_loc[-1]), "", key_starts[-1], ""]],
    f"step {mixed.step}",
)
decoding = next(name for name in batch.request_ids if mixed.scheduled[name] == 1)
length = int(batch.seq_lens[batch.request_ids.index(decoding)])

# %% [markdown]
# By hand we counted `kv_end` from the left: a request's first row sees one key, the second sees two.

# %%
alignment = here.predict(
    f"{decoding} has one row and {length} keys in this step. Counted from the left, what would that row see?",
    [f"all {length} keys", "the oldest key and no other", "the newest key and no other", "nothing"],
)


# %%
def count_from_left(row, q_len, seq_len):
    """Keys that a row of a request sees, if its first row sees one."""
    return range(row + 1)


def count_from_right(row, q_len, seq_len):
    """Keys that a row of a request sees, if its last row sees all."""
    return range(seq_len - q_len + row + 1)


# %% tags=["hide-input"]
left, right = count_from_left(0, 1, length), count_from_right(0, 1, length)
kinds = {range(length): 0, range(1): 1, range(length - 1, length): 2, range(0): 3}
alignment.see(
    alignment.choices[kinds[left]],
    f"From the left it sees {len(left)} of {length}, and its answer would forget the whole conversation. "
    f"From the right it sees {len(right)}: the last row sees everything, each row before it one key less.",
)
here.term(
    "bottom-right alignment",
    "the last row of a request sees all its keys, and each row before it one less. One rule for "
    "prompts, for single tokens, and for any piece of a prompt.",
)
agree = all(
    list(count_from_right(i, n, n)) == list(count_from_left(i, n, n))
    for n in LENGTHS.values()
    for i in range(n)
)
here.claim(
    agree, "With as many keys as rows, both ways of counting agree; that is why the nine tokens worked."
)

# %% [markdown]
# Here is that step's matrix, as the visualizer draws it: below each other the rows, side by side the keys.
# Every row is one unbroken bar, and a bar is two numbers.

# %%
here.panels(masked, mixed.step, "mask")

# %% [markdown]
# ## The kernel
#
# A kernel is a function that runs in many copies at once. Each copy takes a few neighbouring rows and must
# find out by itself whose they are: with the same binary search. Only that it looks for the number of its
# group of `TILE_QUERIES` rows, not for a single row.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_varlen:find_request")
size = 4
groups = [
    f"{name} has number {first // size + r}"
    for r, (name, first) in enumerate(zip(names, seq_start_loc, strict=False))
]
here.say(f"""
    With groups of {size} rows, of our nine tokens {", ".join(groups)}. The `+ middle` keeps requests apart:
    each begins a group of its own, and no group has rows of two. A number that stays unused in between costs
    a copy that returns at once.
""")

# %% [markdown]
# Then come the two numbers. The pointers `k_begin` and `v_begin` are moved to the request's first key, so
# `kv_end` is counted from there; it is `seq_len - q_len + row + 1`, as you have just seen.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_varlen:varlen_kernel", "kv_begin = ", "v_begin = v +")

# %% [markdown]
# And this one line, a comparison of numbers that are already there, is all that is left of the matrix.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_tile:attend_keys", "scores = tl.where(", "scores = tl.where(")

# %% [markdown]
# How the keys are walked over is the story of chapter 7. Here the kernel runs on the nine tokens. Without a
# GPU, Triton interprets it, slowly but truly. On a CPU the project serves models with compiled loops that do
# the same.

# %%
from tinycb_kernels import varlen_attention

by_kernel = varlen_attention(q, k, v, starts, starts, backend="triton")
by_loops = varlen_attention(q, k, v, starts, starts)

# %% tags=["hide-input"]
differences = [
    [name, f"{(result - by_mask).abs().max():.0e}"]
    for name, result in {
        "by hand": by_hand,
        "the Triton kernel": by_kernel,
        "what a CPU or GPU takes here": by_loops,
    }.items()
]
here.claim(
    all(torch.allclose(result, by_mask, atol=1e-5) for result in (by_hand, by_kernel, by_loops)),
    "All of them give what the matrix gives:",
)
here.table(["nine tokens", "largest difference"], differences)

# %% [markdown]
# ## A neighbour's trouble
#
# There is one more difference. Suppose that B's values have gone wrong, and one of them is not a number.

# %%
broken = v.clone()
broken[seq_start_loc[1]] = float("nan")  # the value of B's first token

trouble = here.predict(
    "One value of B is NaN. B's own answer is lost. Whose answers are lost with the matrix?",
    ["B's alone", "B's, and of the others only those behind it", "everybody's"],
)

# %%
with_mask = mask_attention(q, k, broken, causal_mask(starts, starts)).isnan().any(dim=(1, 2))
with_offsets = varlen_attention(q, k, broken, starts, starts).isnan().any(dim=(1, 2))


# %% tags=["hide-input"]
def whose(is_lost):
    """Requests with a lost row."""
    return {names[find_request(row)] for row in range(T) if is_lost[row]}


lost = {frozenset("B"): 0, frozenset("BC"): 1, frozenset("ABC"): 2}
trouble.see(
    trouble.choices[lost[frozenset(whose(with_mask))]],
    f"With the matrix, {int(with_mask.sum())} of {T} rows are NaN; with offsets {int(with_offsets.sum())}, "
    f"all of them {' and '.join(sorted(whose(with_offsets)))}'s. A key that the matrix hides has weight "
    "zero, and zero times NaN is NaN. By offsets it is never read at all.",
)

# %% [markdown]
# ## Memory against T
#
# How much is it, when rows become many? Eight requests of equal length share `T` rows. The shorter ones are
# really built and measured; of the longer ones the size is computed.

# %%
sizes = {}
for tokens in (64, 256, 1024, 4096):
    offsets = torch.tensor([0, *accumulate([tokens // 8] * 8)], dtype=torch.int32)
    sizes[tokens] = causal_mask(offsets, offsets).nbytes, 2 * offsets.nbytes

# %% tags=["hide-input"]
from tinycb.memory import kv_bytes_per_token


def readable(count):
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024


model = here.model.config
token_bytes = kv_bytes_per_token(model.num_layers, model.num_kv_heads, model.head_dim)
here.claim(
    all(size == (tokens * tokens, 72) for tokens, size in sizes.items()),
    "A byte an entry, as the formula says, so it can be trusted for what does not fit here:",
)
here.table(
    ["T", "the matrix", "both offsets", f"keys and values, {here.model_name}"],
    [
        [f"{tokens:,}", readable(tokens * tokens), readable(72), readable(tokens * token_bytes)]
        for tokens in (*sizes, 16384, 65536, 131072)
    ],
)
here.say(f"""
    Four times the rows, {sizes[4096][0] // sizes[1024][0]} times the matrix. A token's keys and values take
    {token_bytes:,} bytes in all layers of this model. So from {token_bytes:,} rows on, the matrix alone is
    larger than everything that it is about.
""")

# %% [markdown]
# ## What it gained
#
# The same people again, with offsets.

# %%
offset = here.serve(
    "varlen", PROMPTS, MAX_TOKENS, chat=True, times=2, batching="continuous", attention="varlen"
)
here.compare(masked, offset, measures=("forwards", "rows", "time", "speed"))

# %% tags=["hide-input"]
requests = len(largest.scheduled)
here.gain("numbers that say who sees whom, largest step", rows * keys, 2 * (requests + 1), "numbers")
here.gain("scores: made with the matrix, and asked for by the rule", entries, used, "scores")
here.gain("time of the run", masked.seconds, offset.seconds, "s", measured=True)

# %% [markdown]
# ## What it leaves open
#
# Offsets say where a request's keys begin and end. So they must lie side by side, in one row, request after
# request. In the cache they do not lie like that, and therefore this happens in every layer of every step:

# %% tags=["hide-input"]
here.show_source("tinycb.model.attention:attention", "keys = k_cache", "values = v_cache")
computed = sum(shape(record)[0] for record in offset.records)
copied = sum(shape(record)[1] for record in offset.records)
here.say(f"""
    It is a copy. To compute {computed} rows, the run copied the keys and values of **{copied:,}** tokens,
    {copied / computed:.1f} for every row: {readable(copied * token_bytes)}, only to lay them side by side.
    Why do they not lie side by side from the beginning? Because everybody's past grows, and nobody knows how
    long it will be.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("05_kv_range")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/attention/ops/triton_attention_helpers.py",
    "find_seq_idx",
    "The binary search, over the same offsets; the kernel finds its request with it.",
)
here.vllm(
    "vllm/v1/attention/backends/flash_attn.py",
    "FlashAttentionImpl.forward",
    "Hands `query_start_loc` to FlashAttention as `cu_seqlens_q`. No mask is built anywhere.",
)

# %% tags=["hide-input"]
here.finish(
    offset,
    "[chapter 6](06_paged_cache.py): where keys and values lie, when everybody's past grows; "
    "and [`kernels/tinycb_kernels/varlen.py`](../kernels/tinycb_kernels/varlen.py), which has the whole "
    "of this chapter in its plain torch version.",
)
