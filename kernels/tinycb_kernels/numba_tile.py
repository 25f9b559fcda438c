"""The arithmetic under every CPU loop: a few rows times one vector of columns, and e^x.

    out[m, 0:LANES]  =  sum over i of  x[m, i] * w[i, 0:LANES]         for ROWS rows at once

              w[i]  ────────────────▶  one vector register, loaded once for all rows
    x[0, i]  ▶ broadcast ▶ multiply-add ▶  acc[0]   ┐
    x[1, i]  ▶ broadcast ▶ multiply-add ▶  acc[1]   │  ROWS vector registers, which
      …                                      …      │  leave the loop only at its end
    x[R, i]  ▶ broadcast ▶ multiply-add ▶  acc[R]   ┘

This is the micro-kernel of BLIS (Van Zee and van de Geijn, 2015), and it runs at nine tenths of what the
processor can multiply. Linear layers, scores (queries times keys) and weighted values are all loops around
it. Every number is one chain of fused multiply-adds in the order of i: its bits do not depend on how many
rows there are, on which of them it is in, or on how wide the registers are; and a chain may be laid down and
taken up again (`go_on`).

Numba has no vector registers, so the loop is handed to LLVM as it stands (an `intrinsic`). In Python it is

    for m in range(rows):
        for lane in range(LANES):
            total = out[out_at + m * out_row + lane] if go_on else 0
            for i in range(count):
                total = fma(x[x_at + m * x_row + i * x_step], w[w_at + i * w_step + lane], total)
            out[out_at + m * out_row + lane] = total

Numba keeps compiled code until the file of the outermost function changes. So whoever edits this file must
also renew TILE_VERSION in the files that use it, and so change them; a test says so, and to what.
"""

import hashlib
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
LANES = 16 if WIDE else 8  # float32 numbers in a vector
ROWS = 16 if WIDE else 8  # rows at once: their accumulators and w fit in the registers

AHEAD = 64  # steps: w is asked for before it is needed, or memory and arithmetic would take turns

I64, F32 = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)

HALF, QUARTER = ROWS // 2, ROWS // 4  # the heights of a last tile that holds few rows

LOG2_E = np.float32(1.4426950408889634)
LN_2_HIGH = np.float32(0.693359375)  # few bits, so that n * LN_2_HIGH is exact
LN_2_LOW = np.float32(-2.1219444005469057e-4)  # the rest of ln 2
LOWEST, HIGHEST = np.float32(-87.0), np.float32(89.0)  # 2**n would be no normal float32; e**89 is infinite


@njit(error_model="numpy")
def exp(x: np.float32) -> np.float32:
    """e**x within about one unit in the last place; 0 for x < -87, infinite for x > 89. NaN stays NaN.

    e**x = 2**n * e**r with n whole and |r| <= ln(2) / 2, where seven terms of e**r's series are enough. Plain
    multiplications and additions, which IEEE 754 rounds alike in a vector and in a single element: so the
    bits do not depend on how the compiler cuts up the loop that this is in.
    """
    y = x if x < HIGHEST else HIGHEST  # HIGHEST for NaN too
    n = np.floor(y * LOG2_E + np.float32(0.5))
    r = y - n * LN_2_HIGH - n * LN_2_LOW
    series = np.float32(1 / 5040)
    series = series * r + np.float32(1 / 720)
    series = series * r + np.float32(1 / 120)
    series = series * r + np.float32(1 / 24)
    series = series * r + np.float32(1 / 6)
    series = series * r + np.float32(1 / 2)
    series = series * r * r + r + np.float32(1)
    two_to_n = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    result = np.float32(0) if x < LOWEST else series * two_to_n
    return result if x == x else x


@njit(error_model="numpy")
def tile_rows(all_rows: int, tile: int) -> int:
    """How many rows the micro-kernel computes for a tile: fewer than ROWS where the last needs no more."""
    left = all_rows - tile * ROWS
    if left > HALF:
        return ROWS
    return HALF if left > QUARTER else QUARTER


def emit_tile_product(
    typing_context: Any,
    rows: Any,
    go_on: Any,
    count: Any,
    x: Any,
    x_at: Any,
    x_row: Any,
    x_step: Any,
    w: Any,
    w_at: Any,
    w_step: Any,
    out: Any,
    out_at: Any,
    out_row: Any,
) -> Any:
    """The loop above. rows and go_on: literals · x, out: flat float32 · w: flat, as it is stored."""
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(go_on, types.BooleanLiteral):
        return None
    number, w_type = types.intp, w.dtype
    signature = types.void(
        rows, go_on, number, x, number, number, number, w, number, number, out, number, number
    )

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        _, _, count, _, x_at, x_row, x_step, _, w_at, w_step, _, out_at, out_row = arguments

        def pointer(index: int, at: Any) -> Any:
            data = context.make_array(signature.args[index])(context, builder, arguments[index]).data
            return builder.gep(data, [at])

        x, w, out = pointer(3, x_at), pointer(7, w_at), pointer(10, out_at)
        fma_type = ir.FunctionType(VECTOR, [VECTOR] * 3)
        fma = cgutils.get_or_insert_function(builder.module, fma_type, f"llvm.fma.v{LANES}f32")
        row_starts = [builder.gep(x, [builder.mul(x_row, I64(m))]) for m in range(rows.literal_value)]
        targets = [
            builder.bitcast(builder.gep(out, [builder.mul(out_row, I64(m))]), VECTOR.as_pointer())
            for m in range(rows.literal_value)
        ]
        first_totals = [
            builder.load(target, align=4) if go_on.literal_value else ir.Constant(VECTOR, [0.0] * LANES)
            for target in targets
        ]

        before = builder.block
        head, body, after = (builder.append_basic_block(name) for name in ("tile", "step", "tile_end"))
        builder.branch(head)

        builder.position_at_end(head)
        i = builder.phi(I64)
        totals = [builder.phi(VECTOR) for _ in row_starts]
        builder.cbranch(builder.icmp_signed("<", i, count), body, after)

        builder.position_at_end(body)
        columns = load_lanes(builder, builder.gep(w, [builder.mul(i, w_step)]), w_type)
        ask_for(builder, builder.gep(w, [builder.mul(builder.add(i, I64(AHEAD)), w_step)]))
        x_offset = builder.mul(i, x_step)
        new_totals = [
            builder.call(
                fma, [broadcast(builder, builder.load(builder.gep(start, [x_offset]))), columns, total]
            )
            for start, total in zip(row_starts, totals, strict=True)
        ]
        next_i = builder.add(i, I64(1))
        builder.branch(head)

        i.add_incoming(I64(0), before)
        i.add_incoming(next_i, body)
        for total, first_total, new_total in zip(totals, first_totals, new_totals, strict=True):
            total.add_incoming(first_total, before)
            total.add_incoming(new_total, body)

        builder.position_at_end(after)
        for total, target in zip(totals, targets, strict=True):
            builder.store(total, target, align=4)
        return context.get_dummy_value()

    return signature, generate


tile_product: Any = intrinsic(prefer_literal=True)(emit_tile_product)


def emit_copy(lanes: int) -> Any:
    """What emits target[target_at : + lanes] = source[at : + lanes], as float32; both flat."""

    def emit(typing_context: Any, source: Any, at: Any, target: Any, target_at: Any) -> Any:
        signature = types.void(source, types.intp, target, types.intp)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            def pointer(index: int) -> Any:
                data = context.make_array(signature.args[index])(context, builder, arguments[index]).data
                return builder.gep(data, [arguments[index + 1]])

            numbers = load_lanes(builder, pointer(0), source.dtype, lanes)
            builder.store(numbers, builder.bitcast(pointer(2), numbers.type.as_pointer()), align=4)
            return context.get_dummy_value()

        return signature, generate

    return emit


copy_lanes: Any = intrinsic(emit_copy(LANES))
copy_number: Any = intrinsic(emit_copy(1))


def load_lanes(builder: ir.IRBuilder, pointer: Any, stored_as: Any, lanes: int = LANES) -> Any:
    """Numbers from memory as float32. 16-bit floats arrive as integers, for Numba has none on a CPU:
    bfloat16, which is the upper half of a float32, as uint16; float16 as int16."""

    def vector(kind: Any) -> Any:
        return ir.VectorType(kind, lanes)

    def load(kind: Any, align: int) -> Any:
        return builder.load(builder.bitcast(pointer, vector(kind).as_pointer()), align=align)

    if stored_as == types.float32:
        return load(F32, 4)
    if stored_as == types.int16:
        return builder.fpext(load(ir.HalfType(), 2), vector(F32))
    wide = builder.zext(load(ir.IntType(16), 2), vector(ir.IntType(32)))
    return builder.bitcast(builder.shl(wide, ir.Constant(wide.type, [16] * lanes)), vector(F32))


def ask_for(builder: ir.IRBuilder, pointer: Any) -> None:
    """Have memory brought into the cache, and do not wait for it. Any address will do."""
    address, number = builder.bitcast(pointer, ir.IntType(8).as_pointer()), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(prefetch, [address, number(0), number(3), number(1)])  # for reading, to be kept, data


def broadcast(builder: ir.IRBuilder, number: Any) -> Any:
    """A vector that holds one number in every lane."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.IntType(32)(0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    )


def version(path: str) -> str:
    """A source file in eight letters."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8]
