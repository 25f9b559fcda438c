# %% [markdown]
# # 12. From here to vLLM
#
# Everything in this course has a counterpart in vLLM, which serves large models on many GPUs. This last
# chapter puts the two side by side, and ends where you go on by yourself: in vLLM's own files.

# %%
from tinycb.learn import chapter

here = chapter(12)

# %% [markdown]
# ## The limit of the last chapter
#
# A property tells right from wrong, and leaves open which right thing is done. So look at what vLLM does. It
# was given some prompts and a cache too small for them, and each of its scheduler's decisions was written
# down. The file comes with tinycb.

# %%
from importlib.resources import files

recorded = here.recorded("vLLM", files("tinycb") / "data/vllm_preemption.jsonl")
DECIDING = (
    *("block_size", "num_blocks", "max_num_batched_tokens", "max_num_seqs"),
    *("max_model_len", "prefix_caching", "reserve_full_prompt"),
)
SETTINGS = {name: getattr(recorded.config, name) for name in DECIDING}

# %% tags=["hide-input"]
here.table(["setting", "value"], list(SETTINGS.items()))
here.say(
    "`reserve_full_prompt`: nobody comes in unless blocks for all their tokens are free, not just a chunk."
)
here.table(
    ["", "prompt tokens", "answer", "its prompt begins"],
    [
        [output.request_id, len(output.prompt_token_ids), len(output.token_ids), f"{output.prompt:.48} …"]
        for output in recorded.outputs
    ],
)

# %% [markdown]
# The same requests through our three schedulers. No model runs here: each request is given the tokens that it
# got from vLLM, so that only the choices can differ.

# %%
requests = {}
for one in recorded.outputs:
    requests[one.request_id] = (one.prompt_token_ids, one.token_ids)

policies = ("static", "continuous", "chunked")
runs = [here.script(name, requests, batching=name, **SETTINGS) for name in policies]

# %% tags=["hide-input"]
here.table(
    ["", *(run.name for run in runs), "vLLM"],
    [
        ["steps", *(len(run.records) for run in [*runs, recorded])],
        ["preemptions", *(run.totals.num_preemptions for run in [*runs, recorded])],
        ["tokens computed again", *(run.totals.waste.recomputed_tokens for run in [*runs, recorded])],
    ],
)
here.claim(
    len({len(run.records) for run in runs}) == 3,
    "All three are right, as the last chapter means it, and no two take the same number of steps.",
)

# %% [markdown]
# One of them has vLLM's numbers. That may be luck; numbers of steps are a weak witness.

# %% tags=["hide-input"]
parts = here.predict(
    "Lay the run of the continuous scheduler beside vLLM's. In which step do the two decide differently for "
    "the first time? (Steps count from zero.)"
)

# %% [markdown]
# ## The idea
#
# Do not compare what came out. Compare every decision: who runs, how many tokens, on which blocks, who gives
# way, who waits, and for what reason.

# %% tags=["hide-input"]
here.term(
    "replay",
    "a recorded run is given to a scheduler again, with the same arrivals and the same sampled tokens; "
    "everything else is decided anew, and compared step by step.",
)

# %% [markdown]
# ## The code
#
# vLLM lets you name the class of its scheduler. Ours is vLLM's own with another class in front: it asks vLLM
# to choose, keeps what was chosen, and hands it on.

# %% tags=["hide-input"]
here.show_source("tinycb.adapters.recorder:Recorder.schedule")

# %% [markdown]
# The other half is a loop. It takes a recorded step, lets today's engine make that step with the recorded
# tokens, and compares the two records field by field:

# %% tags=["hide-input"]
here.show_source(
    "tinycb.replay:replay", "for index, record in enumerate(reader)", "return comparison.difference"
)

# %%
from tinycb.replay import replay
from tinycb.scheduling.continuous import ContinuousScheduler

parting = replay(recorded.path, scheduler=ContinuousScheduler)
difference = replay(recorded.path)

# %% tags=["hide-input"]
wanted = sum(len(output.prompt_token_ids) for output in recorded.outputs)
parts.see(
    parting.step,
    f"There, {' '.join(parting.recorded)} are {parting.field} in vLLM's run, and "
    f"{' '.join(parting.replayed)} in ours. Continuous batching knows no budget and lets all {wanted} prompt "
    f"tokens in at once; vLLM's budget is {recorded.config.max_num_batched_tokens}.",
)
if difference is not None:
    raise AssertionError(f"the chunked scheduler does not decide as vLLM did: {difference}")
decisions = sum(len(record.decisions) for record in recorded.records)
here.say(f"""
    And the chunked scheduler: **no difference in {len(recorded.records)} steps**. The same requests in the
    same order with the same counts, the same block numbers, the same prefix hits, and the same reason with
    the same numbers for each of {decisions} decisions.
""")

# %% [markdown]
# ## Two of its decisions
#
# You know the rules by now. Here is the beginning of vLLM's run, as far as a step in which no block is left.

# %% tags=["hide-input"]
crises = [record for record in recorded.records if record.preempted]
crisis = crises[1]
before = recorded.records[crisis.step - 1]
grower = next(
    d.numbers["winner"] for d in crisis.decisions if d.action == "preempt" and "winner" in d.numbers
)
here.steps(recorded, 0, before.step)

# %% tags=["hide-input"]
victim = here.predict(
    f"Step {crisis.step} begins with {before.num_free_blocks} free blocks, and {grower} needs one for its "
    f"next token. {', '.join(before.running)} run, in order of arrival. Who gives up blocks?",
    [*before.running, "nobody: it waits until somebody is done"],
)

# %% tags=["hide-input"]
here.steps(recorded, crisis.step, crisis.step + 1)
after = crises[2]
victim.see(
    crisis.preempted[0],
    f"The newest of those that run. Who waits has no blocks to give. In the next step it is the turn of "
    f"{' and '.join(after.preempted)}, for the same reason.",
)

# %% tags=["hide-input"]
back = next(record for record in recorded.records if record.step > after.step and record.admitted)
todo = {d.request_id: d.numbers for d in back.decisions if d.action == "admit"}
budget = recorded.config.max_num_batched_tokens


def share(counts):
    """As a choice of a question."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


lengths = {name: numbers["todo"] + numbers["hit"] for name, numbers in todo.items()}
whole, left = {}, budget
for name, length in lengths.items():
    whole[name] = min(length, left)
    left -= whole[name]
even = {name: min(length, budget // len(lengths)) for name, length in lengths.items()}
choices = sorted({share(whole), share(even), share(back.scheduled)})
returns = here.predict(
    f"In step {back.step} there is room again. {', '.join(lengths)} wait, with "
    f"{', '.join(map(str, lengths.values()))} tokens each, prompt and answer so far. The budget is {budget}. "
    "How many tokens does each of them run?",
    choices,
)

# %% tags=["hide-input"]
here.steps(recorded, back.step, back.step + 1)
hits = {name: numbers["hit"] for name, numbers in todo.items() if numbers["hit"]}
returns.see(
    share(back.scheduled),
    f"First come, first served, as far as the budget goes. But tokens of the first one were still in the "
    f"prefix cache ({share(hits)}), for nobody had taken those blocks meanwhile. A preempted request may "
    "find its own past again.",
)

# %% [markdown]
# ## The run
#
# Now with a model. Our engine serves the same token ids itself, and every step of it is compared with vLLM's,
# block numbers and reasons included. (On the tiny model the ids are cut to its vocabulary.)

# %%
vocabulary = here.model.config.vocab_size
prompts = [[token % vocabulary for token in one.prompt_token_ids] for one in recorded.outputs]
limits = [len(one.token_ids) for one in recorded.outputs]
ours = here.serve("ours", prompts, limits, ignore_eos=True, dtype="float32", **SETTINGS)
here.timeline(ours)
here.timeline(recorded)

# %%
from tinycb.tracing.diff import compare

result = compare(ours.records, recorded.records, blocks="exact", reasons=True)

# %% tags=["hide-input"]
if result.parting is not None:
    raise AssertionError(
        f"step {result.parting.index} parts in {result.parting.field}: {result.parting.values}"
    )
here.table(
    ["step", "vLLM", "tinycb"],
    [
        [
            record.step,
            "\n".join(decision.sentence for decision in record.decisions),
            "the same" if record.decisions == own.decisions else "other",
        ]
        for record, own in zip(recorded.records, ours.records, strict=True)
        if record.preempted or record.admitted
    ],
    "the steps in which somebody came in or gave way",
)
here.say(f"The same decisions in all {result.steps} steps.")
same = sum(ours[name].token_ids == recorded[name].token_ids for name in recorded.names)
if here.fast:
    here.say("The tokens are another model's here. Without `--fast`, they are compared too.")
else:
    here.claim(
        result.token_difference is None and same == len(recorded.names),
        f"And all {result.num_tokens} tokens of the answers are vLLM's tokens.",
    )

# %% [markdown]
# ## Live
#
# Where vLLM is installed, this chapter serves the prompts on it now, instead of trusting a file.
# `VLLM_PYTHON` names an interpreter that has it.

# %% tags=["hide-input"]
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.text import Text

from tinycb.adapters import vllm_settings

installed = None
if here.fast:
    here.say("Not with `--fast`: the tiny model exists in memory only, and vLLM loads SmolLM2.")
else:
    try:
        installed = vllm_settings.find()
    except ValueError as error:
        here.say(f"Not here: {error}.")
if installed is not None:
    temporary = TemporaryDirectory(prefix="tinycb-")  # gone when this process ends
    folder = Path(temporary.name)
    (folder / "prompts.txt").write_text("".join(f"{one.prompt}\n" for one in recorded.outputs), "utf-8")
    flags = [f"--{name.replace('_', '-')}={SETTINGS[name]}" for name in DECIDING[:5]]
    flags += ["--dtype=float32", f"--max-tokens={max(limits)}", "--trace=live.jsonl"]
    command = ["run", "--engine", "vllm", "--prompts", "prompts.txt", *flags]
    here.show(Text(f"$ tinycb {shlex.join(command)}", style="bold"))
    done = subprocess.run(
        [sys.executable, "-m", "tinycb", *command], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or "vLLM did not run")
    trace = folder / "live.jsonl"
    live = here.recorded("live", trace)
    with_live = compare(ours.records, live.records, blocks="exact", reasons=True)
    here.claim(
        with_live.is_equal and with_live.steps == len(ours.records),
        f"vLLM {installed.version}, just now: the same decisions in all {with_live.steps} steps, the same "
        f"block numbers, and the same {with_live.num_tokens} tokens as ours.",
    )

# %% [markdown]
# ## What it gained

# %% tags=["hide-input"]
here.gain("steps decided as vLLM decides them, from the first", parting.step, result.steps, "steps")

# %% [markdown]
# One run is one run. The project's tests compare many recorded ones, and live ones where vLLM is installed.
# What was found equal, and what not, is in [`docs/vllm.md`](../docs/vllm.md).
#
# ## What production adds
#
# The loop that you know is in the middle of vLLM; around it is what a service on many machines needs. Each of
# these changes when, where or on what the same choices are made. First, *when*: we choose a step, run it, and
# look at its tokens. vLLM can choose the next step while the model still runs this one, and can let a small
# model guess several tokens that the large one then checks in a single forward.

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/async_scheduler.py",
    "AsyncScheduler._update_after_schedule",
    "Counts a token that is not known yet as a placeholder, so that the next step can be chosen.",
)
here.vllm(
    "vllm/v1/engine/core.py",
    "EngineCore.step_with_batch_queue",
    "Several batches in flight, for a model whose layers are spread over machines.",
)
here.vllm(
    "vllm/v1/spec_decode/ngram_proposer.py",
    "NgramProposer.propose",
    "The simplest guess: look for the last tokens earlier in the text. "
    "A draft is a gap of several tokens, and `Scheduler.schedule` runs it as it runs a chunk.",
)
here.vllm("vllm/v1/sample/rejection_sampler.py", "RejectionSampler", "Keeps the guesses that are right.")

# %% [markdown]
# *Who*: a queue by priority, and requests that have to wait for something else than blocks.

# %% tags=["hide-input"]
here.vllm("vllm/v1/core/sched/request_queue.py", "PriorityRequestQueue", "Ours is first come, first served.")
here.vllm(
    "vllm/v1/structured_output/__init__.py",
    "StructuredOutputManager.grammar_bitmask",
    "Answers that must follow a grammar; a request waits until its grammar is compiled.",
)

# %% [markdown]
# *On what*: models whose layers do not all keep the same past, blocks that lie on another machine, and
# weights of several customers in one batch.

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/kv_cache_coordinator.py",
    "HybridKVCacheCoordinator",
    "Several kinds of cache in one model, each with block tables of its own.",
)
here.vllm(
    "vllm/v1/core/single_type_kv_cache_manager.py",
    "SlidingWindowManager",
    "Layers that see the last tokens only; blocks that fall out of the window are free.",
)
here.vllm(
    "vllm/distributed/kv_transfer/kv_connector/v1/base.py",
    "KVConnectorBase_V1.get_num_new_matched_tokens",
    "Asks another machine, or a disk, for the keys and values of a prompt: prompts are computed in one place "
    "and answered in another.",
)
here.vllm("vllm/lora/model_manager.py", "LoRAModelManager", "Small changes of the weights, one a request.")

# %% [markdown]
# And *where*: the packed row becomes tensors that stay on the GPU from step to step, the forward is recorded
# once for each size and started as a whole, and a layer is split over GPUs.

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/worker/gpu_model_runner.py",
    "GPUModelRunner._prepare_inputs",
    "Our `pack`, in place: token ids, positions, `query_start_loc`, `seq_lens`, block tables.",
)
here.vllm(
    "vllm/v1/cudagraph_dispatcher.py",
    "CudagraphDispatcher.dispatch",
    "Pads a batch to the next size whose recorded forward exists.",
)
here.vllm(
    "vllm/v1/attention/ops/triton_unified_attention.py",
    "kernel_unified_attention",
    "The paged kernel of chapter 7, with more kinds of model in it.",
)
here.vllm(
    "vllm/v1/executor/multiproc_executor.py",
    "MultiprocExecutor.execute_model",
    "One process a GPU: the same step is sent to all of them.",
)

# %% [markdown]
# ## What it leaves open
#
# Nothing here has been about answers that go out over a network, about machines that fail, or about what to
# do when more people ask than can be served. But what you have carries over: the recorder works on any vLLM
# server. Step through its trace in the visualizer, and find the step in which *your* users wait, and why.
#
# ## Your turn
#
# The second of these is the last of the course. When it passes, you have written vLLM's choice of a step.

# %% tags=["hide-input"]
here.exercise("12_renamed")
here.exercise("12_schedule")

# %% [markdown]
# ## In vLLM

# %% tags=["hide-input"]
here.vllm(
    "vllm/v1/core/sched/scheduler.py",
    "Scheduler.schedule",
    "Read it now, beside [`tinycb/scheduling/chunked.py`](../tinycb/scheduling/chunked.py). It is much "
    "longer, and you know which lines to look for.",
)
here.vllm(
    "vllm/v1/core/kv_cache_manager.py",
    "KVCacheManager.allocate_slots",
    "First it counts what is needed, then it takes: our `grow` and `admit`.",
)

# %% tags=["hide-input"]
here.finish(
    ours,
    "[`docs/vllm.md`](../docs/vllm.md): record a server of your own, and compare. `tinycb diff` and "
    "`tinycb tui --compare` take any two traces. Then vLLM itself, with `Scheduler.schedule` first.",
)
