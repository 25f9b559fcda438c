"""Compiles every launch configuration of the Triton kernels for sm_90; no GPU is needed.

    python -m benchmarks.gpu_compile [substring of the names to compile] [--json FILE]

The kernels' own launch code runs, on CPU tensors, with a driver in place of the GPU's that only says "sm_90":
so what is compiled is what a launch would compile, down to which argument is known to be a multiple of 16. It
prints one line a kernel and exits with 1 if any spills a register or asks for more shared memory than an H100
or H200 gives to a block. It needs a process in which Triton's interpreter is off.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from tinycb_kernels.configs import MERGE_WARPS, WRITE_WARPS, attention_launch, padded_head_dim

SHARED_MEMORY_LIMIT = 232_448  # bytes a block may use on compute capability 9.0
HEAD_DIMS = (16, 24, 32, 40, 64, 80, 128, 192, 256)  # each padded size filled, and partly filled
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    """One launch to compile. group: query heads for each KV head. many: with tiles of many rows."""

    kernel: str  # paged, varlen, merge, write
    dtype: str
    head_dim: int
    group: int = 1
    block_size: int = 16
    many: bool = False

    @property
    def name(self) -> str:
        launch = attention_launch(DTYPES[self.dtype], self.head_dim, interpreted=False)
        name, warps = f"{self.kernel} {self.dtype} D={self.head_dim}", launch.num_warps
        if self.kernel in ("paged", "varlen"):
            tiles = [launch.many] if self.many else [launch.few]
            if self.many and self.kernel == "paged" and launch.many != launch.few:
                tiles = [launch.few, launch.many]  # one launch for both
            name += f" G={self.group} {' + '.join(f'{tile.rows}x{tile.keys}' for tile in tiles)}"
        else:
            warps = MERGE_WARPS if self.kernel == "merge" else WRITE_WARPS
        return f"{name} warps={warps}"


@dataclass(frozen=True)
class Compiled:
    """What the assembler said of one kernel: registers of a thread, bytes spilled, bytes of shared memory."""

    name: str
    registers: int
    spilled: int
    shared: int

    @property
    def is_wrong(self) -> bool:
        return self.spilled > 0 or self.shared > SHARED_MEMORY_LIMIT

    def __str__(self) -> str:
        numbers = f"{self.registers} registers, {self.spilled} bytes spilled, {self.shared} bytes shared"
        return f"{self.name}: {numbers}"


def cases() -> Iterator[Case]:
    for dtype, dims in (("fp32", HEAD_DIMS), ("bf16", HEAD_DIMS), ("fp16", (128,))):  # fp16 is as bf16
        for dim in dims:
            # 4 heads in a group are Llama's. 3 are neither a power of two nor a divisor of the rows: with a
            # dim that is no power of two either, the most index arithmetic. 80 are more than some tiles have
            # rows; once, with an odd block size, will do.
            shapes = [(4, 16) if dim == padded_head_dim(dim) else (3, 16)]
            launch = attention_launch(DTYPES[dtype], dim, interpreted=False)
            for group, block_size in [*shapes, (80, 24)] if dim == 64 else shapes:
                for many in (False, True):
                    if launch.many == launch.few if many else group > launch.few.rows:
                        continue  # the same tile, or rows that are many already
                    yield Case("paged", dtype, dim, group, block_size, many)
                    yield Case("varlen", dtype, dim, group, many=many)
            yield Case("merge", dtype, dim)
            yield Case("write", dtype, dim)


def launch_of(case: Case) -> None:
    """Call the launch code with tensors of the right shapes. Nothing reads them."""
    from tinycb_kernels.triton_kv_write import write_kv_triton
    from tinycb_kernels.triton_merge import merge_parts
    from tinycb_kernels.triton_paged import paged_triton
    from tinycb_kernels.triton_plan import plan_paged
    from tinycb_kernels.triton_varlen import varlen_triton

    dtype, dim, kv_heads = DTYPES[case.dtype], case.head_dim, 8
    heads = case.group * kv_heads
    q_len = 512 if case.many else 1
    q = torch.empty(q_len, heads, dim, dtype=dtype)
    k = torch.empty(1024, kv_heads, dim, dtype=dtype)
    cache = torch.empty(64, case.block_size, kv_heads, dim, dtype=dtype)
    offsets, lens = torch.tensor([0, q_len], dtype=torch.int32), torch.tensor([q_len], dtype=torch.int32)
    table = torch.empty(1, 512, dtype=torch.int32)
    if case.kernel == "paged":
        plan = plan_paged(
            offsets, lens, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, dtype=dtype, device="cpu"
        )
        paged_triton(q, cache, cache, table, offsets, lens, 0.1, torch.empty_like(q), plan)
    elif case.kernel == "varlen":
        varlen_triton(q, k, k, offsets, offsets, 0.1, torch.empty_like(q))
    elif case.kernel == "merge":
        parts, sums = torch.empty(64, heads, dim), torch.empty(64, heads, 2)
        merge_parts(parts, sums, torch.empty(1, 4, dtype=torch.int32), 0.1, torch.empty_like(q))
    else:
        write_kv_triton(k, k, cache, cache, torch.empty(1024, dtype=torch.int64))


def compile_case(case: Case) -> Compiled:
    kernel = captured(partial(launch_of, case))
    registers, spilled = assemble(kernel.asm["ptx"])
    return Compiled(case.name, registers, spilled, kernel.metadata.shared)


def captured(call: Callable[[], None]) -> Any:
    """The first kernel that a call would launch, compiled and not launched."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    class Sm90:
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
        get_active_torch_device = staticmethod(lambda: torch.device("cpu"))

    compiled = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        compiled.append(run(self, *args, grid=grid, warmup=True, **kwargs))

    driver.set_active(Sm90())
    JITFunction.run = compile_only
    try:
        call()
    finally:
        JITFunction.run = run
    return compiled[0]


def assemble(ptx: str) -> tuple[int, int]:
    """(registers of a thread, bytes spilled) as the assembler reports them."""
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", str(source), "-o", str(output)]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.findall(r"Used (\d+) registers", report)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", report)
    if not registers or not spills:
        raise RuntimeError(f"ptxas reported neither registers nor spills: {report}")
    return int(registers[0]), sum(map(int, spills))


def compile_all(part_of_name: str = "", processes: int = 2) -> Iterator[Compiled]:
    """Every case whose name has this in it, as they are done."""
    chosen = [case for case in cases() if part_of_name in case.name]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(compile_case, chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="compile only what has this in its name")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("TRITON_INTERPRET=1 is set, and an interpreted kernel is not compiled; unset it")
    results = []
    for result in compile_all(options.name, options.processes):
        results.append(result)
        print(result, flush=True)
    wrong = [result for result in results if result.is_wrong]
    print(f"{len(results)} kernels, {len(wrong)} with spills or too much shared memory")
    for result in wrong:
        print("WRONG", result)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
