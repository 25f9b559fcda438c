# %% [markdown]
# # 6. The paged cache
#
# Keys and values grow with every token, and nobody knows how long an answer will be. This chapter is about
# where they lie. It is the idea that made serving many people at once affordable, and it is an old one: an
# operating system gives out memory in the same way.

# %%
from tinycb.learn import chapter

here = chapter(6)

# %% [markdown]
# ## The limit of the last chapter
#
# Offsets need the keys of a request side by side. The simplest way is to give everybody a strip of memory at
# the beginning, long enough for the longest conversation that we promise. Say that is `max_model_len`, and
# the cache holds four strips of it.

# %%
PROMPTS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name a fruit.",
    "Name three primary colors.",
    "Say hello.",
    "Write one sentence about autumn.",
    "What is two plus two?",
    "Name a river.",
]
MAX_TOKENS = [10, 24, 6, 12, 6, 20, 10, 8]
LONGEST = 256
CACHE = 4 * LONGEST  # tokens whose keys and values fit

serving = {"chat": True, "times": 2, "batching": "continuous", "attention": "varlen"}
serving |= {"max_num_seqs": len(PROMPTS), "max_model_len": LONGEST}
strips = here.serve("strips", PROMPTS, MAX_TOKENS, block_size=LONGEST, num_blocks=4, **serving)
here.timeline(strips)


# %% tags=["hide-input"]
def stored(record):
    """Tokens whose keys and values are in the cache, of all requests in a step."""
    return int(record.packed.seq_lens.sum())


def together(run):
    """The most requests that ran at once."""
    return max(len(record.scheduled) for record in run.records)


fullest = max(strips.records, key=stored)
here.say(f"""
    There is a place in the batch for each of the {len(PROMPTS)} requests, and yet never more than
    {together(strips)} run: there are no more strips. Is the memory full, then? In step {fullest.step}, when
    it holds the most, it holds the keys and values of {stored(fullest)} tokens, and it has room for {CACHE}.
    **{1 - stored(fullest) / CACHE:.0%} of it is reserved for words that nobody has said.**
""")

# %% [markdown]
# So give everybody a strip as long as they need, no longer. Suppose even that we knew how long that is. Here
# is a cache of sixteen places; a newcomer gets the first gap that is long enough.


# %%
def place(strip, name, count):
    """Put `count` cells of a request into the first gap that is long enough; False if there is none."""
    first = strip.find("." * count)
    return strip[:first] + name * count + strip[first + count :] if first >= 0 else False


strip, seen = "." * 16, []
for name, count in {"A": 5, "B": 4, "C": 4}.items():
    strip = place(strip, name, count)
    seen.append(strip)
strip = strip.replace("B", ".")  # B is done
here.show(*seen, strip)

# %%
free, needed = strip.count("."), 6
gap = here.predict(
    f"B is done, and {free} places are free. D comes and needs {needed}. Does D get in?",
    ["yes", "no: no gap is long enough"],
)

# %% tags=["hide-input"]
gaps = [len(piece) for piece in strip.replace("A", " ").replace("C", " ").split()]
gap.see(
    gap.choices[0] if place(strip, "D", needed) else gap.choices[1],
    f"The gaps have {' and '.join(map(str, gaps))} places. Together that is enough, but D must lie in one "
    "piece. And as somebody's answer grows, it will sooner or later run into a neighbour, and have to be "
    "copied elsewhere.",
)
here.term(
    "fragmentation",
    "memory that is free and yet of no use: gaps too short for anybody, or room that is reserved and stays "
    "empty.",
)

# %% [markdown]
# ## The idea
#
# Give up *side by side*. Cut the cache into pieces of one small size, and hand them out singly: the next one
# when the last is full, whichever is free. A piece is as good as any other, so there are no gaps; and nothing
# is reserved but the rest of everybody's last piece. All it takes is a list that says which pieces a request
# has, in order.

# %% tags=["hide-input"]
here.term(
    "block",
    "a piece of the KV cache with room for the keys and values of a fixed number of tokens, the block size.",
)
here.term(
    "block table",
    "for each request, the numbers of its blocks, in the order of its tokens. "
    "What is the n-th block to the request (logical) may be any block of the cache (physical).",
)
here.term(
    "slot mapping",
    "for each token of a step, the slot of the cache in which its key and value are stored: block × block "
    "size + place in the block.",
)

# %% [markdown]
# ## The code
#
# The pool of blocks is a list of free ones. Whoever needs some takes them from the front; whoever is done
# gives them back, and those are used first next time. Nothing is moved, nothing is searched. (A block may
# also be shared, or remember an old prompt; that is chapter 10.)

# %% tags=["hide-input"]
here.show_source("tinycb.scheduling.block_pool:BlockPool.allocate")
here.show_source("tinycb.scheduling.block_pool:BlockPool.free", "freed = []", "return freed")

# %% [markdown]
# A running request asks for a block only when its last one is full. This is the scheduler, before it lets
# somebody run `num_tokens` more. (What happens when no block is free is chapter 10 again.)

# %% tags=["hide-input"]
here.show_source(
    "tinycb.scheduling.scheduler:Scheduler.grow", "table = request.block_table", "table += taken"
)

# %% [markdown]
# And these lines turn the positions of a packed row into slots.

# %% tags=["hide-input"]
here.show_source("tinycb.packing:pack", "logical, offset =", "slot_mapping[real] =")

# %% [markdown]
# ## Nine tokens by hand
#
# The three requests of the last chapter again, in a cache of blocks with room for two tokens each. Others
# were here before them, so what is free lies anywhere. This run has no model: tokens are given, and only the
# blocks matter.

# %%
BLOCK_SIZE = 2
before = {"D": (12, 4), "E": (6, 3), "F": (12, 6), "G": (5, 4)}
nine = {"A": (4, 3), "B": (2, 3), "C": (3, 3)}

by_hand = here.script(
    "nine tokens",
    {**before, **nine},
    arrive=dict.fromkeys(nine, 6),
    batching="continuous",
    block_size=BLOCK_SIZE,
    num_blocks=20,
    max_num_seqs=8,
)
step = next(record for record in by_hand.records if "C" in record.admitted)

# %% tags=["hide-input"]
table = step.block_tables
here.claim(
    list(step.scheduled) == list(nine) and list(table["C"]) == [7, 18],
    f"In step {step.step} the others are gone, and A, B and C come in. They get "
    f"{', '.join(f'{name} {list(blocks)}' for name, blocks in table.items())}: two of C's tokens are in "
    f"block {table['C'][0]} and one is in block {table['C'][1]}, far away from it.",
)

# %%
where = here.predict(
    f"C's blocks are {list(table['C'])}, and a block has {BLOCK_SIZE} slots. In which slot is C's third "
    "token, the one at position 2?"
)


# %%
def slot(request, position):
    """Where a token's key and value lie: one division, one look into the table."""
    logical, offset = position // BLOCK_SIZE, position % BLOCK_SIZE
    physical = table[request][logical]
    return physical * BLOCK_SIZE + offset


# %% tags=["hide-input"]
rows = []
for name, (count, _) in nine.items():
    for position in range(count):
        logical, offset = position // BLOCK_SIZE, position % BLOCK_SIZE
        physical = table[name][logical]
        rows.append([f"{name}{position}", position, logical, physical, offset, slot(name, position)])
here.table(["token", "position", "logical", "physical", "offset", "slot"], rows)
where.see(
    slot("C", 2),
    f"Position 2 is in C's logical block {2 // BLOCK_SIZE}, at offset {2 % BLOCK_SIZE}. The table says that "
    f"this is block {table['C'][1]} of the cache: slot {table['C'][1]} · {BLOCK_SIZE} + {2 % BLOCK_SIZE}.",
)
here.claim(
    [row[-1] for row in rows] == step.packed.slot_mapping.tolist(),
    f"The last column is the slot mapping that the step really had: `{step.packed.slot_mapping.tolist()}`.",
)

# %% [markdown]
# The whole cache in that step, as the visualizer draws it: two places a block, the letter says whose. On the
# right is C's block table, and below, the way to one of its tokens. (Blocks that are cached or shared come in
# chapter 10.)

# %%
here.panels(by_hand, step.step, "blocks", "place", select="C:2")

# %% [markdown]
# Now keys really go there and come back. The memory of a cache is not cleared, so we fill it with NaN first:
# whoever reads a slot that is nobody's will show it.

# %%
import torch

from tinycb_kernels import write_kv

k_cache = torch.full((20, BLOCK_SIZE, 1, 4), float("nan"))  # (NB, BS, KH, D)
v_cache = k_cache.clone()
k = torch.arange(9 * 4.0).reshape(9, 1, 4)  # (T, KH, D)
write_kv(k, -k, k_cache, v_cache, torch.from_numpy(step.packed.slot_mapping))

of_c = [slot("C", position) for position in range(3)]
read_back = k_cache.flatten(0, 1)[of_c]  # (3, KH, D)

# %% tags=["hide-input"]
written = int((~k_cache.isnan()).all(dim=(2, 3)).sum())
here.claim(
    torch.equal(read_back, k[6:9]) and written == 9,
    f"Slots {of_c} give back C's three keys, in order. {written} slots of {20 * BLOCK_SIZE} are written, and "
    "the others still hold NaN.",
)

# %% [markdown]
# ## The run
#
# The eight people of the beginning again, with the same amount of memory, now in blocks of sixteen.

# %%
paged = here.serve("blocks", PROMPTS, MAX_TOKENS, block_size=16, num_blocks=CACHE // 16, **serving)
here.timeline(paged)

# %% tags=["hide-input"]
peak = max(paged.records, key=stored)
taken = {name: len(blocks) for name, blocks in peak.block_tables.items()}
here.claim(
    together(paged) == len(PROMPTS) and strips.records[0].num_waiting > 0,
    f"Nobody waits: all {together(paged)} run at once. In step {peak.step}, the fullest, they hold "
    f"{stored(peak)} tokens in {sum(taken.values())} blocks, and {peak.num_free_blocks} of {CACHE // 16} "
    "blocks are still free.",
)

# %% [markdown]
# Here are the blocks of that step, and the table of one request.

# %%
here.panels(paged, peak.step, "blocks", select="B")

# %% [markdown]
# ## How large is a block?
#
# What is left of fragmentation is in everybody's last block.

# %%
lost_at_16 = here.predict(
    "Blocks have 16 places. How many of them stay empty in a request's last block, on the average over all "
    "steps of this run?",
    ["about 1", "about half of them", "nearly all"],
)


# %% tags=["hide-input"]
def lost(record, size):
    """Places that are taken and empty, each request's, with blocks of this size."""
    return [-(-seq // size) * size - seq for seq in record.packed.seq_lens.tolist()]


def entries(record, size):
    """Numbers in the step's block table: a row for each request, as long as the longest."""
    return len(record.scheduled) * -(-int(record.packed.seq_lens.max()) // size)


each = [count for record in paged.records for count in lost(record, 16)]
mean = sum(each) / len(each)
nearest = min(range(3), key=lambda i: abs(mean - (1, 7.5, 15)[i]))
lost_at_16.see(
    lost_at_16.choices[nearest],
    f"The mean is {mean:.1f}. A last block holds anything from one token to {16}, all equally likely, so "
    f"{(16 - 1) / 2} are empty on the average of all lengths.",
)
here.claim(
    sum(each) == paged.totals.waste.slack_in_last_blocks,
    f"The engine counts it too, as waste: {paged.totals.waste.slack_in_last_blocks:,} empty places, summed "
    f"over all {len(paged.records)} steps.",
)

# %% [markdown]
# A smaller block loses less. But the tables become longer, and a kernel has to look up their numbers. It gets
# them as one rectangle: a row for each request, all as long as the longest needs. This is the fullest step,
# with every block size from a single token to the whole strip. Lengths are those of the run; blocks are
# computed from them.

# %%
SIZES = [2**i for i in range(9)]  # 1 to 256

# %% tags=["hide-input"]
lines = []
for size in SIZES:
    empty, numbers = sum(lost(peak, size)), entries(peak, size)
    lines.append(
        [size, (stored(peak) + empty) // size, empty, f"{empty / (stored(peak) + empty):.0%}", numbers]
    )
here.table(
    ["block size", "blocks taken", "empty places", "of what is taken", "numbers in the block table"],
    lines,
    f"step {peak.step}: {len(peak.scheduled)} requests with {stored(peak)} tokens",
)
here.bars({f"{size}": sum(lost(peak, size)) for size in SIZES}, "places", "empty places, by block size")
here.bars({f"{size}": entries(peak, size) for size in SIZES}, "numbers", "block table, by block size")

# %% tags=["hide-input"]
from tinycb.memory import kv_bytes_per_token

model = here.model.config
token_bytes = kv_bytes_per_token(model.num_layers, model.num_kv_heads, model.head_dim)
share = sum(lost(peak, 16)) / (stored(peak) + sum(lost(peak, 16)))
here.say(f"""
    One column grows where the other falls. An empty place is a token's keys and values, {token_bytes:,} bytes
    in this model; a number in the table is {peak.packed.block_table.itemsize}. That speaks for small blocks.
    But a kernel reads memory best when many keys lie behind one look into the table, and the scheduler has to
    hand out and to count every block. {here.config().block_size} is what vLLM and this project begin with:
    here that leaves {share:.0%} of what is taken empty, and needs {entries(peak, 16)} numbers.
""")

# %% [markdown]
# One thing must not depend on it: what the model says. A run with a block for every single token:

# %%
singles = here.serve("single tokens", PROMPTS, MAX_TOKENS, block_size=1, num_blocks=CACHE, **serving)

# %% tags=["hide-input"]
answers = [[output.token_ids for output in run.outputs] for run in (strips, paged, singles)]
here.claim(
    answers[0] == answers[1] == answers[2],
    f"Strips of {LONGEST}, blocks of 16, blocks of 1: everybody got the same tokens.",
)

# %% [markdown]
# ## What it gained

# %%
here.compare(strips, paged, measures=("forwards", "rows", "most", "time", "speed"))

# %% tags=["hide-input"]
here.gain("requests that run at once, in the same memory", together(strips), together(paged), "requests")
here.gain("forwards for the same answers", strips.totals.forwards, paged.totals.forwards, "forwards")
typical = round(sum(peak.packed.seq_lens.tolist()) / len(peak.scheduled))
here.gain(
    f"requests of {typical} tokens for which {CACHE} tokens of cache are enough",
    CACHE // LONGEST,
    (CACHE // 16) // -(-typical // 16),
    "requests",
)

# %% [markdown]
# ## What it leaves open
#
# Keys are now anywhere, and the kernel of chapter 5 wants them in one row. So before every layer they are
# collected, slot by slot, through the table:

# %% tags=["hide-input"]
here.show_source("tinycb.model.attention:live_slots", "position = ", "return")
collected = sum(stored(record) for record in paged.records)
computed = sum(sum(record.scheduled.values()) for record in paged.records)
layers = here.model.config.num_layers
here.say(f"""
    In this run, {collected:,} keys and as many values were copied in each of {layers} layers, to compute
    {computed} rows. All of it was thrown away after the layer. A kernel that looks into the table itself
    needs no copy at all.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("06_blocks_to_take")
here.exercise("06_slots")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/block_pool.py",
    "BlockPool.get_new_blocks",
    "Blocks from the front of the free list, as here.",
)
here.vllm(
    "vllm/v1/core/kv_cache_manager.py",
    "KVCacheManager.allocate_slots",
    "What `grow` does: how many blocks does a request need for its next tokens, and are they free?",
)
here.vllm(
    "vllm/v1/worker/block_table.py",
    "BlockTable.compute_slot_mapping",
    "Position to slot, for all tokens of the step.",
)

# %% tags=["hide-input"]
here.finish(
    by_hand,
    "[chapter 7](07_paged_kernel.py): the kernel that reads keys where they lie; and "
    "[`tinycb/scheduling/block_pool.py`](../tinycb/scheduling/block_pool.py), whose first picture you can "
    "now read. `tinycb budget` says what a block size costs for any model.",
)
