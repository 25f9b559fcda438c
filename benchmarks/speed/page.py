"""docs/speed.md from what was measured: every figure and verdict on it follows from speed.json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.speed.figure import draw
from benchmarks.speed.results import Entry, ProfileEntry, Results
from benchmarks.speed.systems import DEFAULT, SYSTEMS
from benchmarks.speed.workloads import MAX_NUM_SEQS, WORKLOADS

__all__ = ["write_page"]

DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
BUSY = 0.3  # processors; more than this beside a benchmark, and its row is marked
NOTE = "\n† other processes kept a processor busy meanwhile.\n"
VLLM_GOAL, TRANSFORMERS_GOAL, MEMORY_GOAL = 1.0, 3.5, 1.3

PROFILE_TEXT = """\
Milliseconds of the mean step of tinycb's default, and the share of it. The parts are the step: each is what
its callables took without those inside them. After each step its products run once more, alone, on as many
rows: that is the floor. Written by `python -m benchmarks.profile`; for other settings, `tinycb profile`.
"""
MEMORY_TEXT = f"""\
The peak is that of the process's own memory (`RssAnon`: mapped files are left out) above what it takes once
libraries are imported and loops compiled, from loading on. The packed copy of a table that is the head too
counts as weights. The goal is at most {MEMORY_GOAL} times weights and cache:"""

TRIED_TEXT = """\
## What was tried and left out

Beside what the loops do now, each on two Zen 4 cores; rates are of one core, whose peak is 117 GFLOP/s.

- **products**: tiles of 12 rows and two panels (fp32 the same, bf16 half as fast); inputs split in halves and
  thirds, so that a panel stays in the first cache (116 and 115 GFLOP/s for 117); the scales of bytes taken
  out of the loop (slower); rows multiplied where they lie instead of copied (the same)
- **attention**: tiles of 32, 40 and 64 keys for 48 (the same, or slower); the KV cache in large pages (2 %
  faster once written, slower at first, 110 MB more)
- **not built**: a greedy head without logits and scheduling beside the forward, for sampling and scheduling
  together take under 1 % of a step in fp32; a long context split among threads, which share requests and
  KV heads
"""


def write_page(results: Results, folder: Path) -> None:
    """speed.md, and speed.svg where there is matplotlib."""
    figure = draw(results, folder / "speed.svg")
    parts = [
        _head(results),
        "![Output tokens a second, by system and workload](speed.svg)\n" if figure else "",
    ]
    parts += [_speeds(results, dtype) for dtype in DTYPES]
    parts += [
        _goals(results),
        *(_profile(results, dtype) for dtype in DTYPES),
        _memory(results),
        TRIED_TEXT,
        _how(),
    ]
    (folder / "speed.md").write_text("\n".join(filter(None, parts)), encoding="utf-8")


def _head(results: Results) -> str:
    dates = sorted({entry.date for entry in results.entries})
    when = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}" if dates else ""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    return (
        "# Speed\n\nWritten by `make bench`, from `speed.json`; run it again and compare.\n\n"
        f"{results.model} on {results.machine}, {when}: {versions}.\n"
    )


def _speeds(results: Results, dtype: str) -> str:
    entries = [entry for entry in results.entries if entry.dtype == dtype]
    names = [name for name in WORKLOADS if any(entry.workload == name for entry in entries)]
    if not names:
        return ""
    rows = []
    for system in SYSTEMS.values():
        mine = [results.find(name, dtype, system.name) for name in names]
        if any(mine):
            cells = [_cell(entry) for entry in mine]
            rows.append(
                [f"**{system.title}**" if system.name == DEFAULT else system.title, *cells, _same(mine)]
            )
    head = [f"output tokens/s, {DTYPES[dtype]}", *names, "same tokens"]
    note = NOTE if any(map(_is_busy, entries)) else ""
    return f"## In {DTYPES[dtype]}\n\n{_table(head, rows)}{note}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    mark = " †" if _is_busy(entry) else ""
    ratio = "" if entry.system == DEFAULT else f" ({entry.ratio:.2f} ×)"
    return f"{_speed(entry.speed)}{ratio}{mark}"


def _speed(tokens_per_second: float) -> str:
    return f"{tokens_per_second:.{0 if tokens_per_second >= 100 else 1}f}"


def _is_busy(entry: Entry) -> bool:
    return entry.busy > BUSY


def _same(entries: Iterable[Entry | None]) -> str:
    told = {entry.workload: entry.same for entry in entries if entry is not None}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{name}: {same}" for name, same in told.items())


def _goals(results: Results) -> str:
    """The bar that was set: fp32, each workload, against vLLM compiled and the better transformers mode; and
    what tinycb would be of that mode if a step were nothing but its matrix products."""
    rows, missed = [], []
    products = {
        profile.workload: profile.output_tokens / profile.floor
        for profile in results.profiles
        if profile.dtype == "float32"
    }
    transformers = [system.name for system in SYSTEMS.values() if system.family == "transformers"]
    for name in WORKLOADS:
        vllm = results.find(name, "float32", "vllm-compiled")
        theirs = [results.find(name, "float32", system) for system in transformers]
        best = min(filter(None, theirs), key=lambda entry: entry.ratio, default=None)
        ratios = (
            (None if vllm is None else vllm.ratio, VLLM_GOAL),
            (None if best is None else best.ratio, TRANSFORMERS_GOAL),
        )
        most = products[name] / best.speed if best is not None and name in products else None
        cells = (*(ratio for ratio, _ in ratios), most)
        rows.append([name, *("–" if ratio is None else f"{ratio:.2f} ×" for ratio in cells)])
        if any(ratio is not None and ratio < goal for ratio, goal in ratios):
            missed.append(name)
    if all(cell == "–" for row in rows for cell in row[1:]):
        return ""
    head = [
        *("tinycb's default, fp32", "of vLLM, compiled", "of the better transformers mode measured"),
        "products alone, of that mode",
    ]
    verdict = f"Below it: {', '.join(missed)}." if missed else "Every workload that was measured is above it."
    goal = (
        f"The bar is {VLLM_GOAL:g} times compiled vLLM and {TRANSFORMERS_GOAL} times the better mode of "
        f"transformers. {verdict}\nThe last column is what tinycb would be of that mode if its steps were "
        "nothing but matrix products, as below.\n"
    )
    return f"## Against the bar\n\n{goal}\n{_table(head, rows)}"


def _memory(results: Results) -> str:
    rows = []
    worst = 0.0
    for entry in results.entries:
        memory = entry.memory
        if memory is None or entry.system != DEFAULT:
            continue
        worst = max(worst, memory.ratio)
        sizes = [f"{size / 2**20:,.0f}" for size in (memory.weights, memory.cache, memory.peak)]
        rows.append([f"{entry.workload}, {DTYPES[entry.dtype]}", *sizes, f"{memory.ratio:.2f} ×"])
    if not rows:
        return ""
    head = ["tinycb's default, MiB", "weights", "KV cache written", "peak", "of the two"]
    kept = "kept" if worst <= MEMORY_GOAL else "not kept"
    return f"## Memory\n\n{MEMORY_TEXT} {kept}.\n\n{_table(head, rows)}"


def _profile(results: Results, dtype: str) -> str:
    """A column a workload: the milliseconds of its mean step, part by part, and the share of it."""
    known = {entry.workload: entry for entry in results.profiles if entry.dtype == dtype}
    entries = [known[name] for name in WORKLOADS if name in known]
    if not entries:
        return ""
    rows = [
        [part, *(_share(entry, entry.parts.get(part, 0.0)) for entry in entries)] for part in entries[0].parts
    ]
    rows.append(["**a step**", *(f"**{1000 * entry.seconds / entry.steps:.1f}**" for entry in entries)])
    rows.append(["times the products alone", *(f"{entry.seconds / entry.floor:.2f}" for entry in entries)])
    rows.append(["tokens/s", *(_speed(entry.output_tokens / entry.seconds) for entry in entries)])
    rows.append(
        ["tokens/s, products alone", *(_speed(entry.output_tokens / entry.floor) for entry in entries)]
    )
    marked = [f"{entry.workload}{' †' if entry.busy > BUSY else ''}" for entry in entries]
    note = NOTE if any(entry.busy > BUSY for entry in entries) else ""
    head = [f"ms a step, {DTYPES[dtype]}", *marked]
    return f"## Where the time goes, {DTYPES[dtype]}\n\n{PROFILE_TEXT}\n{_table(head, rows)}{note}"


def _share(entry: ProfileEntry, seconds: float) -> str:
    return f"{1000 * seconds / entry.steps:.2f} ({100 * seconds / entry.seconds:.1f} %)"


def _how() -> str:
    workloads = "\n".join(f"- **{name}**: {workload}" for name, workload in WORKLOADS.items())
    return f"""\
## How it was measured

{workloads}

Prompts are tokens drawn from a seed; end-of-sequence is ignored; decoding is greedy. Every system gets the
same prompts, lengths, weights and dtype, at most {MAX_NUM_SEQS} requests at a time, no prefix caching, and
a few short outputs before the time runs. The part of tinycb's cache that the work will need is written once
before, too: vLLM clears its cache when it starts, and memory's first use is slow. Each serves in a process of
its own, in turn, round after round; a figure is the median of the rounds, a ratio is tinycb's default to that
system in the same round, and the median of these. Transformers' static batches are left-padded, and each runs
to the length of its longest output. vLLM gets all processors, of which it keeps one for itself otherwise, and
runs its engine in the calling process: both are faster here. It and tinycb also turn tokens into text.
A step of tinycb's default takes at most 256 tokens, so that nobody waits long for a neighbour's prompt;
vLLM's takes 4096 here. *1024 tokens a step* is tinycb where that matters less than the whole.

The model comes from a GGUF file of 4- and 8-bit integers, which reading turns into float32 for every system.
tinycb's default finds the integers again and multiplies by them, to the same bits in a third of the memory
(`tinycb_kernels/numba_bytes.py`); *weights as float32* is tinycb without that.

*Same tokens* compares with the reference: transformers' static batches, or where these were not in the run
tinycb's default, which is then named.
In fp32 all must agree; where the model's two largest logits are within 1e-5 of the largest, rounding decides,
and a difference counts as a tie. In bf16 rounding decides often: agreement is reported, not demanded.
"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
