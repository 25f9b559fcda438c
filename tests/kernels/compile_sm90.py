"""Compile every line of the table of launch configurations for sm_90; no GPU is needed.

A script, because it needs a process in which Triton's interpreter is off. It prints one line a kernel and
exits with 1 if any spills a register or asks for more shared memory than an H100 or H200 gives to a block.

    python tests/kernels/compile_sm90.py [substring of the names to compile]
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tinycb_kernels.configs import ATTENTION, WRITE_TOKENS, WRITE_WARPS, padded_head_dim, power_of_two

SHARED_MEMORY_LIMIT = 232_448  # bytes a block may use on compute capability 9.0
HEAD_DIMS = (16, 24, 32, 40, 64, 80, 128, 192, 256)  # each padded size filled, and partly filled
DTYPES = {"fp32": 32, "bf16": 16, "fp16": 16}


@dataclass(frozen=True)
class Case:
    name: str
    kernel: str  # module.function
    dtype: str
    constants: tuple[tuple[str, int | bool], ...]
    num_warps: int
    num_stages: int


def cases() -> Iterator[Case]:
    for dtype, bits in DTYPES.items():
        for dim in HEAD_DIMS:
            padded = padded_head_dim(dim)
            if dtype == "fp16" and dim != padded:
                continue  # to the register the same as bf16
            # 3 heads in a group: neither a power of two nor a divisor of the rows, the most index arithmetic.
            # 80 are more than a tile has rows, and are shared out; once, with an odd block size, will do.
            shapes = [(3, 16), (80, 24)] if dim == 64 else [(3, 16)]
            for launch, (group, block_size) in product(dict.fromkeys(ATTENTION[bits, padded]), shapes):
                tile_heads = min(group, launch.rows)
                constants = {
                    "GROUP": group, "HEAD_DIM": dim, "DIMS": padded, "ROWS": launch.rows, "KEYS": launch.keys,
                    "TILE_HEADS": tile_heads, "TILE_QUERIES": launch.rows // tile_heads, "AS_FLOAT32": False,
                }  # fmt: skip
                for kernel, extra in (("varlen", {}), ("paged", {"BLOCK_SIZE": block_size})):
                    yield Case(
                        f"{kernel} {dtype} D={dim} G={group} {launch.rows}x{launch.keys}"
                        f" warps={launch.num_warps} stages={launch.num_stages}",
                        f"triton_{kernel}.{kernel}_kernel",
                        dtype,
                        tuple((constants | extra).items()),
                        launch.num_warps,
                        launch.num_stages,
                    )
            sizes = {"BLOCK_SIZE": 16, "HEAD_DIM": dim, "DIMS": power_of_two(dim), "TOKENS": WRITE_TOKENS}
            name, kernel = f"write {dtype} D={dim}", "triton_kv_write.write_kernel"
            yield Case(name, kernel, dtype, tuple(sizes.items()), WRITE_WARPS, 3)


# The types of arguments that are not strides, in terms of which arguments Triton specialises a real launch.
POINTERS = {
    "q": "float", "k": "float", "v": "float", "out": "float", "k_cache": "float", "v_cache": "float",
    "q_starts": "i32", "kv_starts": "i32", "block_table": "i32", "seq_lens": "i32", "slot_mapping": "i64",
}  # fmt: skip
NUMBERS = {"scale": "fp32", "requests": "i32", "tokens": "i32", "max_blocks": "i32", "table_row": "i32"}


def compile_case(case: Case) -> tuple[str, str]:
    """(the line to print, what is wrong with it or "")."""
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, function = case.kernel.split(".")
    kernel: Any = getattr(importlib.import_module(f"tinycb_kernels.{module}"), function)
    constants: dict[str, Any] = dict(case.constants)
    signature, attributes = {}, {}
    for i, argument in enumerate(kernel.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument in POINTERS:
            kind = POINTERS[argument]
            signature[argument] = f"*{case.dtype if kind == 'float' else kind}"
            attributes[(i,)] = [["tt.divisibility", 16]]
        elif argument in NUMBERS:
            signature[argument] = NUMBERS[argument]
        elif argument.endswith(("_dim", "_column")):  # a stride of 1, which a launch turns into a constant
            signature[argument], constants[argument] = "constexpr", 1
        else:  # any other stride: a multiple of 16 in a contiguous tensor with such a head dim
            signature[argument] = "i32"
            if constants["HEAD_DIM"] % 16 == 0:
                attributes[(i,)] = [["tt.divisibility", 16]]
    compiled = triton.compile(
        ASTSource(kernel, signature, constants, attributes),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": case.num_warps, "num_stages": case.num_stages, "enable_fp_fusion": True},
    )
    shared = compiled.metadata.shared
    registers, spilled = assemble(compiled.asm["ptx"])
    line = f"{case.name}: {registers} registers, {spilled} bytes spilled, {shared} bytes shared"
    wrong = spilled > 0 or shared > SHARED_MEMORY_LIMIT
    return line, line if wrong else ""


def assemble(ptx: str) -> tuple[int, int]:
    """(registers of a thread, bytes spilled) as the assembler reports them."""
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        report = subprocess.run(
            [
                get_ptxas(90).path,
                "-v",
                "--gpu-name=sm_90a",
                str(source),
                "-o",
                str(Path(folder) / "kernel.cubin"),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.findall(r"Used (\d+) registers", report)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", report)
    if not registers or not spills:
        raise RuntimeError(f"ptxas reported neither registers nor spills: {report}")
    return int(registers[0]), sum(map(int, spills))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="compile only what has this in its name")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = [case for case in cases() if options.name in case.name]
    wrong = []
    work: Callable[[Case], tuple[str, str]] = compile_case
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for line, complaint in pool.map(work, chosen):
            print(line, flush=True)
            if complaint:
                wrong.append(complaint)
    print(f"{len(chosen)} kernels, {len(wrong)} with spills or too much shared memory")
    for complaint in wrong:
        print("WRONG", complaint)
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
