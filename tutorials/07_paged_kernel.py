# %% [markdown]
# # 7. The paged kernel
#
# Keys lie in blocks, anywhere in the cache. In this chapter a kernel goes there and reads them, by the block
# table, without anybody collecting them first. At its end you have read every line that matters of a real
# paged attention kernel, and watched one copy of it at work.

# %%
from tinycb.learn import chapter

here = chapter(7)

# %% [markdown]
# ## The limit of the last chapter
#
# Somebody asks, and three more come while the first answer is being written. The cache is paged, but the
# kernel is still the one that wants keys side by side.

# %%
STORY = (
    "A lighthouse keeper writes down every ship that passes: its name, its flag, the hour, and the weather. "
    "In forty years he has filled nineteen books, and nobody has ever asked to read them. One morning in "
    "spring a girl comes up the stairs and says that her grandfather was a sailor, and that he never came "
    "home. She knows the name of the ship, and the year, and nothing else. The keeper puts on his glasses, "
    "takes down the seventh book, and begins to turn the pages."
)
PROMPTS = [STORY[:180], STORY, "Why is the sky blue?", "Name a fruit."]
MAX_TOKENS = [24, 20, 16, 6]

run_of = {"arrive": [0, 4, 6, 10], "ignore_eos": True, "times": 2, "batching": "continuous"}
run_of |= {"block_size": 16, "num_blocks": 56}
gathered = here.serve("gathered", PROMPTS, MAX_TOKENS, attention="varlen", **run_of)
here.timeline(gathered)


# %% tags=["hide-input"]
def all_keys(record):
    """Keys that the requests of a step may look back on."""
    return int(record.packed.seq_lens.sum())


def new_keys(record):
    """Keys that a step computes."""
    return sum(record.scheduled.values())


copied = sum(all_keys(record) for record in gathered.records)
made = sum(new_keys(record) for record in gathered.records)
quiet = max((r for r in gathered.records if new_keys(r) == len(r.scheduled)), key=all_keys)
here.say(f"""
    Step {quiet.step} computes {new_keys(quiet)} tokens. For that, {all_keys(quiet)} keys and as many values
    are copied out of their blocks, in every layer, used once and thrown away. Over the whole run it is
    **{copied:,} copies for {made} new keys**; and the longer the answers, the worse it becomes.
""")

# %% [markdown]
# ## The idea
#
# Let the kernel look into the block table itself. Everything else can stay: offsets say whose a row is, and
# each row still has a first and a last key. Only the answer to *where is the key of position p*
# changes, from "p places after the first" to one division and one look.
#
# And it never has all keys in its hands at once. It takes some, makes of them what it needs, and forgets
# them.

# %% tags=["hide-input"]
here.term(
    "program",
    "one of the many copies of a kernel that run at the same time, each with a number of its own. "
    "In CUDA it is called a thread block.",
)
here.term(
    "tile",
    "a small rectangle of numbers that a program works on at once: some rows of queries, or some keys.",
)
here.term(
    "context length",
    "how many tokens a request had before this step: all of its tokens, less those that run now.",
)

# %% [markdown]
# ## A step to look at
#
# We take an engine by hand, let two requests decode, and let a third come in. At the first layer of that step
# we listen in, and keep what attention is given: real queries, the real cache, the real tables. Which backend
# the engine runs on is all one; plain torch is the easiest to listen to.

# %%
from itertools import pairwise
from unittest import mock

from tinycb import Request, SamplingParams
from tinycb.model import attention as layers

engine = here.engine(batching="continuous", attention="paged", backend="torch", block_size=16)
story = here.encode(STORY)
engine.add_request(Request("Z", story[:150], SamplingParams(max_tokens=1)))
engine.step()  # somebody was here before, and has given back blocks
for name, prompt in {"A": story[:44], "B": story[:100]}.items():
    engine.add_request(Request(name, prompt, SamplingParams(max_tokens=12, ignore_eos=True)))
for _ in range(6):
    engine.step()
engine.add_request(Request("C", here.encode("Name a fruit.")[:6], SamplingParams(max_tokens=4)))

heard = []
paged_attention = layers.paged_attention


def listen(*tensors, **options):
    """Keep what the first layer's kernel is given, and go on."""
    if not heard:
        heard.extend(tensor.clone() for tensor in tensors[:6])
    return paged_attention(*tensors, **options)


with mock.patch.object(layers, "paged_attention", listen):
    record = engine.step()
q, k_cache, v_cache, block_table, query_start_loc, seq_lens = heard

# %% tags=["hide-input"]
names, starts, lengths = list(record.scheduled), query_start_loc.tolist(), seq_lens.tolist()
q_lens = [end - begin for begin, end in pairwise(starts)]
tables = {name: list(blocks) for name, blocks in record.block_tables.items()}
here.table(
    ["request", "query_start_loc", "rows", "seq_lens", "context_len", "block_table"],
    [
        [name, starts[r], q_lens[r], lengths[r], lengths[r] - q_lens[r], str(tables[name])]
        for r, name in enumerate(names)
    ],
    f"step {record.step}: {q.shape[0]} rows",
)
here.say(f"""
    `q` is {tuple(q.shape)}: rows, query heads, numbers a head. The cache is {tuple(k_cache.shape)}: blocks,
    places in a block, KV heads, numbers. {q.shape[1] // k_cache.shape[2]} query heads share a KV head, so a
    program that has loaded a key can use it {q.shape[1] // k_cache.shape[2]} times.
""")

# %% [markdown]
# ## Who does what
#
# Before the kernel starts, the host deals out the work. An item is some queries of one request, and a range
# of the keys that they may see; a program does one item for one KV head. A request with very many keys is
# cut into several ranges, so that nobody waits for a single program that walks a long way. We ask for the
# plan that a GPU gets, also where there is none.

# %%
import torch

from tinycb_kernels import plan_paged, triton_plan

device = "cuda" if torch.cuda.is_available() else "cpu"  # where Triton runs, compiled or interpreted
heads, kv_heads, D = q.shape[1], k_cache.shape[2], q.shape[2]
sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": D, "dtype": q.dtype, "device": device}
with mock.patch.object(triton_plan, "triton_is_interpreted", return_value=False):
    plan = plan_paged(starts, lengths, **sizes)

# %% tags=["hide-input"]
items = plan.items.tolist()
here.table(
    ["item", "request", "rows", "keys"],
    [
        [number, names[r], f"{first} to {first + count - 1}", f"{begin} to {end - 1}"]
        for number, (r, first, count, _, begin, end, *_) in enumerate(items)
    ],
)
most = plan.launch.few.part
here.say(f"""
    {len(items)} items and {kv_heads} KV heads are {len(items) * kv_heads} programs. The longest comes first.
    A decoding request is cut from {most + 1} keys on: one with {4 * most} keys would be {4} items.
""")

# %% [markdown]
# ## The kernel, line by line
#
# A program reads its item. `r` is the request; the queries begin at row `first_token`; `begin` and `end` are
# the first of its keys and the one after the last.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_paged:attend_item", "r = tl.load(item)", "begin, end, part_row")

# %% [markdown]
# It loads its tile of queries. A row of the tile is one query with one of the heads that share the KV head.
# `tl.load` takes a whole rectangle of addresses at once, and a mask that says which of them exist.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_paged:attend_item", "query, head_in_group", "queries = tl.load")

# %% [markdown]
# Then each row's end, as in chapter 5: the last query of a request sees all of its keys, each one before it a
# key less. Read it as `context_len` plus the row's place among the new tokens, plus one.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_paged:attend_item", "seq_len = tl.load(seq_lens + r)", "kv_end = ")
r = names.index("C")
ends = [lengths[r] - starts[r + 1] + token + 1 for token in range(starts[r], starts[r + 1])]
here.say(f"""
    C's rows are {starts[r]} to {starts[r + 1] - 1} and its length is {lengths[r]}: their `kv_end` is {ends}.
    A's only row is {starts[0]}, and its `kv_end` is {lengths[0] - starts[1] + starts[0] + 1}, its whole past.
""")

# %% [markdown]
# Now the walk. `pos` are the positions of the next tile of keys. Here is the place where paged and packed
# keys part: with `BLOCK_SIZE` zero, position and row are the same; otherwise it is the last chapter's
# arithmetic, for a whole tile at once. `physical` is looked up in the block table.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_tile:attend_keys", "for start in", "v_row = physical")

# %% [markdown]
# Keys and values are loaded from there, queries times keys are the scores, and the comparison with `kv_end`
# hides what a row must not see.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_tile:attend_keys", "keys = load_rows", "softmax_step(")

# %% [markdown]
# ## Softmax without all the scores
#
# A softmax needs the largest of all scores before it can weigh anything, or the exponentials overflow. But
# the program sees the scores tile by tile, and the largest may be in the last one.

# %%
rescue = here.predict(
    "A program has weighed and added up a tile of values. In the next tile there is a larger score. What "
    "becomes of the sums that it has?",
    [
        "they are of no use, and it begins again",
        "each of their keys must be weighed once more",
        "one multiplication puts them right",
    ],
)

# %%
scores, values = torch.tensor([1.0, 3.0, 2.0, 7.0]), torch.tensor([10.0, 20.0, 30.0, 40.0])
at_once = (scores - 7).exp() @ values  # relative to the largest of all four scores
first_tile = (scores[:2] - 3).exp() @ values[:2]  # relative to the largest of the first two
last_tile = (scores[2:] - 7).exp() @ values[2:]
corrected = first_tile * torch.tensor(3.0 - 7.0).exp() + last_tile

# %% tags=["hide-input"]
rescue.see(
    rescue.choices[2] if torch.isclose(corrected, at_once) else rescue.choices[1],
    f"All at once: {at_once:.4f}. Tile by tile, the first sum times exp(3 - 7): {corrected:.4f}. Every key "
    "of the first tile was weighed with exp(score - 3); that single factor makes it exp(score - 7) for all.",
)
here.term(
    "online softmax",
    "a softmax over scores that come piece by piece: it keeps the largest score so far, the sum of the "
    "weights, and the weighted sum of the values, and corrects both sums when a larger score turns up "
    "(Milakov and Gimelshein, 2018).",
)

# %% [markdown]
# In the kernel these are `largest`, `total` and `weighted`. It computes powers of two, for which a GPU has an
# instruction; `factor` makes up for that. Then comes the end: if the item had all the keys, it divides and
# stores. If not, it stores the three running values, and a second kernel, `merge_kernel`, joins the parts by
# the same correction.

# %% tags=["hide-input"]
here.show_source("tinycb_kernels.triton_softmax:softmax_step")
here.show_source("tinycb_kernels.triton_paged:attend_item", "if part_row < 0", "tl.store(out")

# %% [markdown]
# ## Watching one program
#
# This is the same walk in plain Python, for A's query and one of its heads. It goes by the block table, takes
# as many keys a turn as the kernel does, and writes down what it sees.

# %%
BLOCK_SIZE = k_cache.shape[1]
KEYS = plan.launch.few.keys  # of one turn


def walk(query, kv_head, table, begin, end):
    """One row of one program → its three running values, and a line for each turn. query: (D,)."""
    largest, total, weighted, turns = torch.tensor(-torch.inf), torch.tensor(0.0), torch.zeros(D), []
    for start in range(begin, end, KEYS):
        pos = torch.arange(start, min(start + KEYS, end))  # (keys,)
        logical, offset = pos // BLOCK_SIZE, pos % BLOCK_SIZE
        physical = table[logical].long()
        keys, values = k_cache[physical, offset, kv_head], v_cache[physical, offset, kv_head]  # (keys, D)
        scores = keys @ query * D**-0.5  # (keys,)
        new_largest = torch.maximum(largest, scores.max())
        weights, shrink = (scores - new_largest).exp(), (largest - new_largest).exp()
        total = total * shrink + weights.sum()
        weighted = weighted * shrink + weights @ values
        largest = new_largest
        seen = dict(zip(logical.tolist(), physical.tolist(), strict=True))
        turns.append([pos, seen, largest.item(), shrink.item(), total.item(), scores])
    return largest, total, weighted, turns


# %%
turns_of_a = here.predict(
    f"A has {lengths[0]} keys in blocks of {BLOCK_SIZE}, and a program takes {KEYS} keys a turn. How many "
    "turns does it take?"
)

# %%
q, k_cache, v_cache, block_table = (tensor.cpu().clone() for tensor in heard[:4])
row, group = starts[names.index("A")], heads // kv_heads  # group: heads that share a KV head
walks = [walk(q[row, head], head // group, block_table[0], 0, lengths[0]) for head in range(heads)]

# Of the heads, one whose largest score comes late, if there is any.
head = min(range(heads), key=lambda head: walks[head][3][-1][3])
largest, total, weighted, turns = walks[head]
answer = weighted / total

# %% tags=["hide-input"]
here.table(
    ["turn", "positions", "logical → physical", "largest", "shrink", "total"],
    [
        [
            number,
            f"{pos[0]} to {pos[-1]}",
            ", ".join(f"{logical} → {physical}" for logical, physical in seen.items()),
            f"{top:.3f}",
            f"{shrink:.3f}",
            f"{so_far:.3f}",
        ]
        for number, (pos, seen, top, shrink, so_far, _) in enumerate(turns)
    ],
    f"request A, row {row}, query head {head}, KV head {head // group}",
)
turns_of_a.see(
    len(turns),
    f"{len(turns)} turns of at most {KEYS} keys, over {len(tables['A'])} blocks. The block size did not "
    "decide that: a turn may reach over several blocks, or take a part of one.",
)

# %% tags=["hide-input"]
every = torch.cat([scores for *_, scores in turns])
shares = (every - largest).exp() / total  # (keys,)
by_block = {
    f"{logical} → {physical}": 100 * float(shares[logical * BLOCK_SIZE : (logical + 1) * BLOCK_SIZE].sum())
    for logical, physical in enumerate(tables["A"])
}
here.bars(by_block, "%", "from which of A's blocks this head's answer comes, logical → physical")

# %% [markdown]
# Is that what the kernel computes? Here it is itself: all programs, on the same cache. Without a GPU, Triton
# interprets every one of those lines.

# %%
offsets = query_start_loc.to(device), seq_lens.to(device)


def kernel(table, plan):
    """The Triton kernel on the step that we kept, with this block table."""
    where = [tensor.to(device) for tensor in (q, k_cache, v_cache, table)]
    return paged_attention(*where, *offsets, backend="triton", plan=plan).cpu()


out = kernel(block_table, plan)

# %% tags=["hide-input"]
by_walk = []
for r in range(len(names)):
    for i in range(q_lens[r]):
        kv_end = lengths[r] - q_lens[r] + i + 1
        heads_of_row = [
            walk(q[starts[r] + i, h], h // group, block_table[r], 0, kv_end) for h in range(heads)
        ]
        by_walk.append(torch.stack([weighted / total for _, total, weighted, _ in heads_of_row]))
difference = (torch.stack(by_walk) - out).abs().max()
here.claim(
    torch.allclose(answer, out[row, head], rtol=1e-4, atol=1e-5) and difference < 1e-4,
    f"The walk's answer for A is the kernel's. So it is for every row and head: {out.shape[0] * heads} "
    f"walks, and the largest difference is {difference:.0e}.",
)
finer = plan_paged(starts, lengths, **sizes)
cut = sum(names[item[0]] == "B" for item in finer.items.tolist())
merged = (kernel(block_table, finer) - out).abs().max()
here.claim(
    merged < 1e-4,
    f"And once more by the plan that Triton gets on this machine, in which B is {cut} "
    f"item{'s, and merged at the end' if cut > 1 else ' too'}: the largest difference is {merged:.0e}.",
)

# %% [markdown]
# ## Memory that is nobody's
#
# Two things lie around a walk: places that hold nobody's keys, in free blocks and in the rest of a last one,
# and table entries behind the last. Put the worst into both.

# %%
owned = {block for blocks in tables.values() for block in blocks}
for block in set(range(k_cache.shape[0])) - owned:
    k_cache[block], v_cache[block] = torch.nan, torch.nan
for name, length in zip(names, lengths, strict=True):
    if length % BLOCK_SIZE:
        last = tables[name][-1]
        k_cache[last, length % BLOCK_SIZE :] = v_cache[last, length % BLOCK_SIZE :] = torch.nan
wider = torch.cat([block_table, torch.full((len(names), 4), 10**6, dtype=torch.int32)], dim=1)

poison = here.predict(
    f"{k_cache.shape[0] - len(owned)} of {k_cache.shape[0]} blocks are NaN now, and so is the rest of every "
    "last block. Behind every table there is a block number that does not exist. What does the kernel say?",
    ["NaN, for everybody", "NaN, for requests whose last block is not full", "the same bits as before"],
)

# %%
poisoned = kernel(wider, plan)

# %% tags=["hide-input"]
lost = [bool(poisoned[starts[r] : starts[r + 1]].isnan().any()) for r in range(len(names))]
same_bits = torch.equal(poisoned, out)
poison.see(
    poison.choices[2 if same_bits else 0 if all(lost) else 1],
    f"{sum(lost)} of {len(names)} requests have a NaN. A walk ends at the request's own last position, and a "
    "key that does not exist is neither looked up nor loaded: that is what the masks in tl.load are for.",
)

# %% [markdown]
# ## The run
#
# The people of the beginning again, now without copies.

# %%
paged = here.serve("paged", PROMPTS, MAX_TOKENS, attention="paged", **run_of)
here.compare(gathered, paged, measures=("forwards", "rows", "most", "time", "speed"))

# %% [markdown]
# And this is the step in which the last one came in: all that the kernel was given, and the blocks that it
# walked over.

# %%
entrance = max(record.step for record in paged.records if record.admitted)
here.panels(paged, entrance, "batch", "blocks", select="B")

# %% [markdown]
# ## What it gained

# %% tags=["hide-input"]
here.gain("keys copied in every layer, over the run", copied, 0, "keys")
here.gain("time of the run", gathered.seconds, paged.seconds, "s", measured=True)

# %% tags=["hide-input"]
largest_step = max((r for r in paged.records if len(r.scheduled) > 1), key=new_keys)
usual = min(new_keys(record) for record in paged.records if len(record.scheduled) > 1)
here.say(f"""
    ## What it leaves open

    The kernel does not care who brings a prompt and who a single token: one launch does both. But the people
    in it do. The smallest step with company computed {usual} rows, step {largest_step.step} computed
    {new_keys(largest_step)}, and whoever decoded beside that prompt waited for all of it.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("07_online_softmax")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/attention/ops/triton_unified_attention.py",
    "kernel_unified_attention",
    "You can read it now: `find_seq_idx` first, then `context_len`, then a loop over tiles in which "
    "`block_tables_ptr` is looked up. The many other lines are windows, caps and small number formats.",
)
here.vllm(
    "vllm/v1/attention/ops/triton_attention_helpers.py",
    "softmax_step",
    "The online softmax; M is the largest score, L the total.",
)
here.vllm(
    "vllm/v1/attention/ops/triton_unified_attention.py",
    "reduce_segments",
    "Joins the parts of a request whose keys were shared out.",
)

# %% tags=["hide-input"]
here.finish(
    paged,
    "[chapter 8](08_chunked_prefill.py): a long prompt that makes nobody wait; and "
    "[`kernels/tinycb_kernels/triton_paged.py`](../kernels/tinycb_kernels/triton_paged.py) with "
    "[`triton_tile.py`](../kernels/tinycb_kernels/triton_tile.py), which you have now read.",
)
