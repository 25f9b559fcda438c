# %% [markdown]
# # 9. The budget
#
# So far the number of places and the token budget were given by the lesson. Here they are worked out: from
# bytes, which are exact, and from seconds, which are measured here and, for a machine that is not here,
# modelled.

# %%
from tinycb.learn import chapter

here = chapter(9)

# %% [markdown]
# ## What the last chapters took for granted
#
# Eight people ask at once. The same prompts, with more and more places:

# %%
PROMPTS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name three primary colors.",
    "Tell me a story about a lighthouse.",
    "Write one sentence about autumn.",
    "What is two plus two?",
    "Give me a recipe for bread.",
    "Explain what a cache is.",
]
runs = [
    here.serve(f"{places} at once", PROMPTS, 12, ignore_eos=True, times=2, max_num_seqs=places)
    for places in (1, 2, 4, 8)
]

# %% tags=["hide-input"]
from statistics import median

from tinycb.view.results import seconds


def step_time(run):
    """Seconds of a forward in which every place decodes, the median of them."""
    full = [
        r for r in run.records if len(r.scheduled) == run.config.max_num_seqs == sum(r.scheduled.values())
    ]
    return median(r.time_end - r.time_start for r in full)


here.table(
    ["places", "forwards", "a decoding forward", "of it, for each request", "output tokens a second"],
    [
        [
            run.config.max_num_seqs,
            run.totals.forwards,
            seconds(step_time(run)),
            seconds(step_time(run) / run.config.max_num_seqs),
            f"{run.totals.tokens_per_second:.1f}",
        ]
        for run in runs
    ],
    "seconds were measured now, on this machine",
)
here.say(f"""
    {runs[-1].config.max_num_seqs} places take {runs[-1].totals.forwards} forwards instead of
    {runs[0].totals.forwards}, and a forward for {runs[-1].config.max_num_seqs} took
    {step_time(runs[-1]) / step_time(runs[0]):.1f} times as long as a forward for one (measured now, on this
    machine), not {runs[-1].config.max_num_seqs} times. So there are two questions. Why is the second request
    nearly free? And why not hundreds?
""")

# %% [markdown]
# ## How many: bytes
#
# The second question is easier, because it is arithmetic. Beside the weights, memory holds the keys and
# values of every token of every request that is under way: two vectors, in every layer, for each KV head.

# %% tags=["hide-input"]
here.show_source("tinycb.memory:kv_bytes_per_token")

# %%
from tinycb.memory import MemoryBudget, itemsize, kv_bytes_per_token, weight_bytes

shape = here.model.config
dtype = str(here.model.model.dtype).removeprefix("torch.")
token_bytes = kv_bytes_per_token(shape.num_layers, shape.num_kv_heads, shape.head_dim, dtype)

# %% tags=["hide-input"]
engine = here.engine(num_blocks=10)
cache = engine.executor.cache
here.claim(
    cache.k.nbytes + cache.v.nbytes == 10 * cache.block_size * token_bytes,
    f"""
    For {here.model_name} in {dtype}: 2 × {shape.num_layers} layers × {shape.num_kv_heads} KV heads ×
    {shape.head_dim} numbers × {token_bytes // (2 * shape.num_layers * shape.num_kv_heads * shape.head_dim)}
    bytes = **{token_bytes:,} bytes a token**. The tensors of an engine's cache of 10 blocks have exactly
    {cache.k.nbytes + cache.v.nbytes:,} bytes, {10 * cache.block_size} times that. A text of
    {weight_bytes(shape, dtype) // token_bytes:,} tokens weighs as much as the whole model.
    """,
)
here.term(
    "N_max",
    "the most tokens, of all requests together, whose keys and values fit beside the weights: "
    "(memory - weights) / bytes per token.",
)

# %% tags=["hide-input"]
here.show_source("tinycb.memory:MemoryBudget.max_tokens")
here.show_source("tinycb.memory:MemoryBudget.requests_of")

# %% [markdown]
# The last line counts in blocks, and rounds twice: a request's last block is its own, though half of it may
# be empty, and a request that gets most of its blocks cannot run on them.

# %%
LENGTH = 72 if here.fast else 40  # tokens of each request, prompt and answer
memory = weight_bytes(shape, dtype) + 4 * LENGTH * token_bytes
budget = MemoryBudget.of(shape, memory, dtype)

# %% tags=["hide-input"]
fit = here.predict(
    f"This memory leaves room for N_max = {budget.max_tokens} tokens beside the weights. Blocks have "
    f"{budget.block_size} tokens. Static batching reserves all blocks that a request can ever need. Of eight "
    f"requests of {LENGTH} tokens each, how many run at once?"
)

# %%
answers = [LENGTH - len(here.encode(prompt)) for prompt in PROMPTS]
left = memory - weight_bytes(shape, dtype)
reserved = here.serve(
    "reserved",
    PROMPTS,
    answers,
    ignore_eos=True,
    batching="static",
    max_num_seqs=8,
    num_blocks=None,
    kv_cache_memory=left,
)
here.timeline(reserved)

# %% tags=["hide-input"]
at_once = max(len(record.running) for record in reserved.records)
assert at_once == budget.requests_of(LENGTH)
blocks_each = -(-LENGTH // budget.block_size)
fit.see(
    at_once,
    f"By tokens it would be {budget.max_tokens // LENGTH}. But {LENGTH} tokens take {blocks_each} blocks, "
    f"and {budget.num_blocks} blocks are {at_once} times that, with {budget.num_blocks % blocks_each} left "
    f"over. All {reserved.config.max_num_seqs} places were allowed; memory decides first.",
)

# %% [markdown]
# The same arithmetic for models and cards that need not be here. It is exact, for it only counts.

# %% tags=["hide-input"]
from tinycb.costs.devices import DEVICES
from tinycb.costs.shapes import load_shape

rows = []
for model, kind, card, count in [
    ("smollm2-135m", "bfloat16", "h100", 1),
    ("llama-3-8b", "bfloat16", "h100", 1),
    ("llama-3-8b", "bfloat16", "h200", 1),
    ("llama-3-70b", "bfloat16", "h100", 1),
    ("llama-3-70b", "bfloat16", "h100", 4),
]:
    sizes, total = load_shape(model), count * DEVICES[card].memory
    each = kv_bytes_per_token(sizes.num_layers, sizes.num_kv_heads, sizes.head_dim, kind)
    start = [model, f"{count} × {card}", f"{weight_bytes(sizes, kind) / 1e9:.1f} GB", f"{each / 1000:.0f} kB"]
    try:
        room = MemoryBudget.of(sizes, total, kind)
        rows.append([*start, f"{room.max_tokens:,}", f"{room.requests_of(4096):,}"])
    except ValueError:
        rows.append([*start, "weights do not fit", "-"])
here.table(
    ["model", "memory", "weights", "a token", "N_max", "requests of 4,096 tokens"],
    rows,
    "weights and cache in bfloat16; several cards are taken as one memory",
)

# %% [markdown]
# ## How fast: bytes again
#
# Now the first question. The largest part of a forward are products with the weights. Here is one such
# product by itself, the project's own, of the size of the real model's largest in a layer; many layers of
# it, so that no processor cache holds them. We multiply one row by all of them, then more.

# %%
import time

import torch

from tinycb.model.linear import Linear

INNER, OUTER = 576, 3072
COUNT = 12 if here.fast else 32
options = {"device": here.model.model.device, "dtype": here.model.model.dtype}
layers = [Linear(torch.randn(OUTER, INNER, **options)) for _ in range(COUNT)]
layer_bytes = COUNT * INNER * OUTER * itemsize(dtype)


@torch.inference_mode()
def best_time(rows: int, tries: int = 5) -> float:
    """Seconds of all layers' products with so many rows; the best try, because neighbours only cost time."""
    x, times = torch.randn(rows, INNER, **options), []
    for _ in range(tries):
        start = time.perf_counter()
        for layer in layers:
            y = layer(x)
        float(y[0, 0])  # wait for it
        times.append(time.perf_counter() - start)
    return min(times)


# %% tags=["hide-input"]
CHOICES = {1.5: "about as long", 3: "about twice as long", 6: "about four times as long"}
few = here.predict(
    "Four rows are four times the arithmetic of one row. Compared with one row, how long do they take?",
    list(CHOICES.values()),
)

# %%
ROWS = [1, 2, 4, 8, 16, 32, 64, 128]
taken = {rows: best_time(rows) for rows in ROWS}

# %% tags=["hide-input"]
here.table(
    ["rows", "all products", "for each row", "weights read", "operations", "operations a byte"],
    [
        [
            rows,
            seconds(t),
            seconds(t / rows),
            f"{layer_bytes / t / 1e9:.1f} GB/s",
            f"{2 * rows * COUNT * INNER * OUTER / t / 1e9:.0f} G/s",
            f"{2 * rows / itemsize(dtype):g}",
        ]
        for rows, t in taken.items()
    ],
    f"{layer_bytes / 1e6:.0f} MB of weights; measured now, on this machine",
)
here.bars(
    {f"{rows} row{'s' if rows > 1 else ''}": 1000 * taken[rows] / rows for rows in ROWS},
    "ms",
    "time for each row, measured now, on this machine",
)
ratio = taken[4] / taken[1]
few.see(
    next((choice for bound, choice in CHOICES.items() if ratio < bound), CHOICES[6]),
    f"{ratio:.1f} times as long, measured now, on this machine. The weights have to come from memory once, "
    f"whether one row waits for them or four.",
)

# %% [markdown]
# Read two columns against each other. Where the *bytes a second* are at their height, the arithmetic units
# mostly wait; where the *operations a second* are, memory mostly waits. Between them the time begins to grow
# with the rows. The last column says which side a product is on, and needs no clock.

# %% tags=["hide-input"]
here.term(
    "arithmetic intensity",
    "operations for each byte that is moved. A product of some rows with a weight matrix does two "
    "operations a row with each weight, and moves the weight once.",
)
here.term(
    "bandwidth-bound",
    "waiting for bytes rather than for arithmetic: the arithmetic intensity is lower than what the machine "
    "can compute in the time in which it moves a byte.",
)
bandwidth = max(layer_bytes / taken[rows] for rows in (1, 2, 4))
flops = max(2 * rows * COUNT * INNER * OUTER / taken[rows] for rows in ROWS)
balance = flops / bandwidth
here.say(f"""
    On this machine, now: {bandwidth / 1e9:.1f} GB/s and {flops / 1e9:.0f} G operations/s, so
    {balance:.1f} operations in the time of one byte. A {dtype} weight has {itemsize(dtype)} bytes and gets 2
    operations a row: up to about **{itemsize(dtype) * balance / 2:.0f} rows** a product is bandwidth-bound. A
    decoding request brings *one* row. A prompt of that many tokens is past the border on its own.
""")

# %% [markdown]
# The whole model is such products, and beside them attention, which reads each request's own keys and values:
# those are shared by nobody, so they make every further request cost something. `CostModel` counts both, and
# each weight with the bytes that it takes where it is kept: weights that were made from small integers stay
# as small as these on a CPU (`kernels/tinycb_kernels/numba_bytes.py`).

# %% tags=["hide-input"]
here.show_source("tinycb.costs.roofline:CostModel.work_of")
here.show_source("tinycb.costs.roofline:CostModel.floor")

# %%
from tinycb.costs.devices import Device
from tinycb.costs.roofline import CostModel

machine = Device("this machine", bandwidth, {dtype: flops}, memory=1 << 34, source="measured in this chapter")
cost = CostModel(shape, machine, dtype, bytes_per_weight=here.model.model.bytes_per_weight)
floors = {}
for run in runs:
    places, context = run.config.max_num_seqs, 16  # tokens that each has behind it, about
    work = cost.work([(1, context)] * places)
    floors[places] = (work, cost.floor(work).seconds)

# %% tags=["hide-input"]
here.table(
    ["decoding", "bytes", "of them weights", "operations a byte", "at least (modelled)", "took (measured)"],
    [
        [
            places,
            f"{work.bytes / 1e6:.1f} MB",
            f"{work.weight_bytes / work.bytes:.0%}",
            f"{work.ops / work.bytes:.2f}",
            seconds(floor),
            seconds(step_time(run)),
        ]
        for run, (places, (work, floor)) in zip(runs, floors.items(), strict=True)
    ],
    f"a decoding forward of {here.model_name}; the floor is modelled from the two figures above",
)
here.say(f"""
    The bytes of a forward for {max(floors)} are {floors[max(floors)][0].bytes / floors[1][0].bytes:.2f} times
    those for one, and its operations {
    floors[max(floors)][0].ops / floors[1][0].ops:.1f} times. That is why the
    table at the beginning looks as it does{
    ", though this tiny model mostly waits for Python, not for memory: run the chapter without --fast to "
    "see it"
    if here.fast
    else ""
}.
""")

# %% [markdown]
# ## What throughput costs
#
# More places, more tokens a second. Who could be against it? Look at the same four runs from the side of one
# reader. TTFT and TPOT are those of chapter 2.

# %% tags=["hide-input"]
here.table(
    ["places", "output tokens a second", "TTFT", "TTFT in steps", "TPOT", "longest gap"],
    [
        [
            run.config.max_num_seqs,
            f"{run.totals.tokens_per_second:.1f}",
            seconds(run.totals.ttft.mean),
            f"{run.totals.ttft_steps.mean:.1f}",
            seconds(run.totals.tpot.mean),
            seconds(run.result.longest_gap),
        ]
        for run in runs
    ],
    "means over the eight requests; seconds were measured now, on this machine",
)

# %% [markdown]
# With few places one waits long for the first token and then reads fast. With many, the first token comes
# soon and each further one is a little late, because everybody's rows are in everybody's forward. On a small
# model and few requests that is about all one can see. For a large model on a large card, the clock has to be
# modelled. The schedule is the real one: the same engine, whose forward computes nothing and moves a clock on
# by the floor of its bytes and operations.

# %% tags=["hide-input"]
h100 = DEVICES["h100"]
llama = load_shape("llama-3-8b")
modelled = CostModel(llama, h100)
here.show_source("tinycb.executors:CostModelExecutor.execute")

# %%
from tinycb import Engine
from tinycb.executors import CostModelExecutor, SimulatedClock
from tinycb.simulation import serve_workload, simulated_wait
from tinycb.workloads.synthetic import SyntheticTraffic

traffic = SyntheticTraffic(requests=96, rate=1000.0, prompt=1024, output=96, spread=0.5).make()


def simulate(places: int, tokens: int):
    """Everybody comes within a tenth of a second; what it takes to serve them all."""
    clock = SimulatedClock()
    config = here.config(max_num_seqs=places, max_num_batched_tokens=tokens, num_blocks=25_000)
    engine = Engine(config, CostModelExecutor(modelled, clock, max_model_len=8192), clock=clock)
    return serve_workload(engine, traffic, simulated_wait(clock))


by_places = {places: simulate(places, 2048) for places in (1, 4, 16, 64, 96)}

# %% tags=["hide-input"]


def latencies(name, reports):
    here.table(
        [name, "output tokens a second", "TTFT", "TPOT", "longest gap"],
        [
            [
                value,
                f"{report.totals.tokens_per_second:,.0f}",
                seconds(report.totals.ttft.mean),
                seconds(report.totals.tpot.mean),
                seconds(report.longest_gap),
            ]
            for value, report in reports.items()
        ],
        f"llama-3-8b on one H100, {len(traffic)} requests; all seconds are modelled, and are floors",
    )


latencies("places", by_places)
first_places, last_places, crowd = (by_places[places].totals for places in (1, 64, 96))
here.claim(
    last_places.tokens_per_second > 5 * first_places.tokens_per_second
    and last_places.tpot.mean > first_places.tpot.mean
    and last_places.ttft.mean < first_places.ttft.mean
    and crowd.tpot.mean > last_places.tpot.mean
    and crowd.tokens_per_second <= last_places.tokens_per_second,
    f"""
    From one place to 64: {last_places.tokens_per_second / first_places.tokens_per_second:.1f} times the
    tokens a second, for {last_places.tpot.mean / first_places.tpot.mean:.1f} times the TPOT. That is the
    trade, and it is a good one until it is not: with 96 places instead of 64 everybody's TPOT
    grows again, and the throughput does not.
    """,
)

# %% [markdown]
# Those had a large budget. Now we hold the places and change the budget, as in the last chapter.

# %% tags=["hide-input"]
BUDGETS = [128, 256, 512, 1024, 2048, 8192]
most = here.predict(
    "64 places: with which budget do most tokens come out in a second?", [str(b) for b in BUDGETS]
)

# %%
by_budget = {tokens: simulate(64, tokens) for tokens in BUDGETS}

# %% tags=["hide-input"]
latencies("budget", by_budget)
best = max(by_budget, key=lambda tokens: by_budget[tokens].totals.tokens_per_second)
most.see(
    best,
    f"{by_budget[best].totals.tokens_per_second:,.0f} tokens a second, modelled; with "
    f"{max(by_budget)} it is {by_budget[max(by_budget)].totals.tokens_per_second:,.0f}.",
)
balanced = modelled.balanced_rows()
larger = [by_budget[tokens].longest_gap for tokens in BUDGETS if tokens >= best]
here.claim(
    best not in (BUDGETS[0], BUDGETS[-1]) and larger == sorted(larger),
    f"""
    Below a budget of {best}, tokens a second are lost: the weights are read for few rows, and more rows would
    have cost next to nothing. Above it nothing is gained, and everybody waits longer for each token: from
    {seconds(larger[0])} to {seconds(larger[-1])} at worst. The model knows where the border is: at {balanced}
    rows the products of this model on this card take as long to compute as their weights take to read. That
    is where tinycb begins when nobody gives it a budget:
    """,
)
here.show_source("tinycb.costs.sizing:size_engine", "blocks = ")

# %%
from tinycb.costs.sizing import size_engine

sizing = size_engine(modelled, int(0.9 * h100.memory), 16, mean_length=1300)

# %% tags=["hide-input"]
here.say(f"""
    For requests of 1,300 tokens: {sizing.num_blocks:,} blocks, {sizing.max_num_seqs} places, a budget of
    {sizing.max_num_batched_tokens} tokens. The source of the figures: {h100.source}. A floor is not a
    promise; `tinycb bench` measures how far a real machine is above it.
""")
here.gain(
    f"llama-3-8b on one H100, modelled, 4 places and a budget of 2048, then 64 and {best}",
    by_places[4].totals.tokens_per_second,
    by_budget[best].totals.tokens_per_second,
    "output tokens/s",
)
here.gain(
    f"output tokens a second of {here.model_name}",
    runs[0].totals.tokens_per_second,
    runs[-1].totals.tokens_per_second,
    "tokens/s",
    measured=True,
)

# %%
crowded = here.serve(
    "crowded", PROMPTS, answers, ignore_eos=True, max_num_seqs=8, num_blocks=None, kv_cache_memory=left
)
here.timeline(crowded)

# %% tags=["hide-input"]
peak = max(len(record.running) for record in crowded.records)
here.say(f"""
    ## What it leaves open

    That was the memory of before, with room for {at_once} reserved requests, under chunked batching, which
    reserves nothing for an answer. {peak} ran at once, in {crowded.totals.forwards} forwards instead of
    {reserved.totals.forwards}. And {crowded.totals.num_preemptions} times somebody was thrown out again,
    because all of them grew and the memory did not. Who, and what became of them, is the next chapter.
""")

# %% [markdown]
# ## Your turn

# %% tags=["hide-input"]
here.exercise("09_how_many_fit")
here.exercise("09_fewest_rows")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/worker/gpu_worker.py",
    "Worker.determine_available_memory",
    "There the memory that is left is measured: the model runs once on made-up input, and what it did not "
    "touch is the cache's.",
)
here.vllm(
    "vllm/v1/core/kv_cache_utils.py",
    "get_max_concurrency_for_kv_cache_config",
    "`requests_of`, for requests of `max_model_len` tokens; it is in the log of every start.",
)
here.vllm(
    "vllm/config/scheduler.py",
    "SchedulerConfig",
    "`max_num_batched_tokens` and `max_num_seqs`, with their defaults.",
)

# %% tags=["hide-input"]
here.finish(
    crowded,
    "[chapter 10](10_out_of_memory.py): what happens when they all grow. "
    "[`tinycb/costs/roofline.py`](../tinycb/costs/roofline.py) has the whole count; "
    "`tinycb budget llama-3-8b --device h100` prints this chapter's tables for any model.",
)
