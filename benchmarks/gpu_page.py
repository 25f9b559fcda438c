"""The page docs/gpu.md: what has been compiled, tested interpreted, run on a GPU, and what has not.

`python benchmarks/gpu.py --write` writes it. Without results it says that nothing has run, and what would be.
The numbers of registers and shared memory are the compiler's, made here and now, with a GPU or without.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from json import loads
from pathlib import Path
from typing import Any

from tinycb_kernels.configs import SPLIT_TILES

ROOT = Path(__file__).resolve().parent.parent
SHARED_MEMORY_LIMIT = 232_448
Rows = list[dict[str, Any]]

INTRODUCTION = """# The Triton kernels on a GPU

Written by `python benchmarks/gpu.py --write`.

Paths 2 and 3 and the cache write are Triton kernels. The paged one serves prompts and single tokens in one
launch, laid out on the host ([`triton_plan.py`](../kernels/tinycb_kernels/triton_plan.py)): a program an item
and KV head, the longest items first. A request of at most {split} tiles is cut at fixed numbers of keys,
and its parts are merged ([`triton_merge.py`](../kernels/tinycb_kernels/triton_merge.py)); how it is cut
depends on nothing but its own lengths, so its bits do not depend on its neighbours.

## What has been done, and what not

- **Compiled**: every line of the table of launches, by the code that launches it, for sm_90 and by Triton's
  own assembler: the table at the end. A test does it again.
- **Interpreted**: on a CPU, Triton's interpreter runs the same kernels in every test of `tests/kernels` and
  theorem of `tinycb.proofs`: against float64, with NaN in all memory that is nobody's, bit for bit alone and
  in batches; and the planted faults are found. The plan has property tests of its own, and decode graphs run
  with a stand-in that repeats the step on the recorded tensors.
- **Not seen by either**: races, what layouts and warps do to the order of a sum, 16-bit products (they are
  float32 when interpreted), and every speed. For those the kernels have to run on a GPU.
"""

NOT_RUN = """
## Not run on a GPU

No GPU could be had for this page. **Nothing here has been timed, and no compiled kernel has been executed.**
On a machine with one, `python benchmarks/gpu.py --write` takes under eight minutes and does all of it: the
correctness grids compiled; the bandwidth of a copy and the rate of a bf16 matrix product; decode (B 1 to 256,
contexts 1k to 16k) and prompts against torch's SDPA, FlexAttention and `torch.nn.attention.varlen`, as shares
of those two; and the engine on a random model of Llama 3 8B's shape, with CUDA graphs and without. A test
runs every part of it dry, tiny and interpreted.

What is aimed at, and neither shown nor refuted: decode at 85 % of the copy's bandwidth, prompts at 60 % of
the matrix product's rate, and never slower than FlexAttention.
"""


def write(page: Path, results: dict[str, Any] | None) -> None:
    page.write_text("\n".join(lines(results)) + "\n")
    print(f"wrote {page}")


def lines(results: dict[str, Any] | None, compiled: Rows | None = None) -> Iterator[str]:
    """The page. results: as `measure` returns them. compiled: the table at the end; None compiles it now."""
    yield INTRODUCTION.format(split=SPLIT_TILES).rstrip()
    if results is None:
        yield NOT_RUN.rstrip()
    else:
        yield from measured(results)
    yield from compiled_section(compile_now() if compiled is None else compiled)


def measured(results: dict[str, Any]) -> Iterator[str]:
    facts, parts = results["machine"], results["parts"]
    versions = ", ".join(f"{name} {facts[name]}" for name in ("torch", "triton", "python"))
    yield f"\n## Run on a GPU\n\n{facts['gpu']}; {versions}. By `python benchmarks/gpu.py`.\n"
    for name, part in parts.items():
        if part["outcome"] != "ok":
            yield f"- **{name}: {part['outcome']}**, after {len(part['rows'])} rows."
    rates = {row["what"]: row["rate"] for row in rows_of(parts, "ceilings")}
    if "grids" in parts:
        yield from grids_section(rows_of(parts, "grids"))
    if rates:
        text = "; ".join(f"{what} {quantity(row)}" for what, row in ceilings_of(parts).items())
        yield f"\n### Ceilings\n\n{text}. Shares below are of these.\n"
    bandwidth, flops = rates.get("copy"), rates.get("bf16 matmul")
    for name, title in (("decode", "Decode"), ("prompts", "Prompts")):
        if name in parts:
            yield f"\n### {title}\n\nThe shape of Llama 3 8B: H 32, KH 8, D 128, bf16, blocks of 16.\n"
            yield from race_table(rows_of(parts, name), bandwidth, flops)
    if "engine" in parts:
        yield from engine_section(rows_of(parts, "engine"), bandwidth)


def rows_of(parts: dict[str, Any], name: str) -> Rows:
    rows: Rows = parts.get(name, {}).get("rows", [])
    return rows


def ceilings_of(parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["what"]: row for row in rows_of(parts, "ceilings")}


def quantity(row: dict[str, Any]) -> str:
    return f"{row['rate'] / 1e12:.2f} T{row['unit']}"


def grids_section(rows: Rows) -> Iterator[str]:
    wrong = [row for row in rows if row["wrong"]]
    yield f"\n### Correctness\n\n{len(rows)} batches, {len(rows) - len(wrong)} of them right in every way.\n"
    yield from (f"- {row['case']}: {'; '.join(row['wrong'])}" for row in wrong)


def race_table(rows: Rows, bandwidth: float | None, flops: float | None) -> Iterator[str]:
    yield "| batch | | µs | TB/s | of the copy | TFLOP/s | of the product | off by |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        name = f"| {row['batch']} | {row['contender']} |"
        if "failed" in row:
            yield f"{name} {row['failed']} | | | | | |"
            continue
        moved, worked = row["B/s"], row["FLOP/s"]
        yield (
            f"{name} {row['seconds'] * 1e6:.0f} | {moved / 1e12:.2f} | {share(moved, bandwidth)} "
            f"| {worked / 1e12:.0f} | {share(worked, flops)} | {row['off']:.1e} |"
        )


def share(rate: float, ceiling: float | None) -> str:
    return f"{100 * rate / ceiling:.0f} %" if ceiling else "–"


def engine_section(rows: Rows, bandwidth: float | None) -> Iterator[str]:
    weights = next((row["bytes"] for row in rows if row.get("what") == "weights read by a step"), 0)
    yield (
        "\n### The engine\n\nA random model of Llama 3 8B's shape, prompts of 512, 64 tokens each. The floor "
        "of a step is reading its weights and keys once at the copy's bandwidth.\n"
    )
    yield "| requests | CUDA graphs | ms a decode step | of its floor | tokens/s |\n|--:|---|--:|--:|--:|"
    for row in rows:
        if "batch" not in row:
            continue
        name = f"| {row['batch']} | {'yes' if row['graphs'] else 'no'} |"
        if "failed" in row:
            yield f"{name} {row['failed']} | | |"
            continue
        step = row["decode_step"]
        times = f"{step * bandwidth / (weights + row['kv_bytes']):.2f} ×" if bandwidth else "–"
        yield f"{name} {1000 * step:.2f} | {times} | {row['tokens/s']:.0f} |"


def compiled_section(rows: Rows) -> Iterator[str]:
    version = importlib.metadata.version("triton")
    spilled = sum(row["spilled"] > 0 for row in rows)
    most = max((row["shared"] for row in rows), default=0)
    yield (
        f"\n## What the compiler says\n\n{len(rows)} kernels for sm_90a by Triton {version}, "
        f"`python -m benchmarks.gpu_compile`: {spilled} spill registers; the most shared memory is {most:,} "
        f"of {SHARED_MEMORY_LIMIT:,} bytes. `G` is query heads for each KV head, `16x64` rows and keys of a "
        "tile; two tiles are a launch for short and long requests at once.\n"
    )
    yield "| kernel | registers | spilled, bytes | shared memory, bytes |\n|---|--:|--:|--:|"
    for row in rows:
        yield f"| {row['name']} | {row['registers']} | {row['spilled']} | {row['shared']:,} |"


def compile_now() -> Rows:
    """In a process without Triton's interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder, "compiled.json")
        more = ["--json", str(numbers), "--processes", str(os.cpu_count() or 2)]
        command = [sys.executable, "-m", "benchmarks.gpu_compile", *more]
        subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL)
        rows: Rows = loads(numbers.read_text())
    return rows
