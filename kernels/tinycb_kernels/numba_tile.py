"""The arithmetic under every CPU loop: a few rows times one vector of columns.

    out[m, 0:lanes]  =  sum over i of  x[m, i] * w[i, 0:lanes]         for up to ROWS rows at once

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
        for lane in range(lanes):
            total = out[out_at + m * out_row + lane] if go_on else 0
            for i in range(count):
                total = fma(x[x_at + m * x_row + i * x_step], w[w_at + i * w_step + lane], total)
            out[out_at + m * out_row + lane] = total

w is float32, or smaller in memory and widened as it is loaded, one vector at a time: 16-bit floats, or a pair
(bytes, scales), of which numba_bytes.py says how it came about.

Memory and arithmetic would take turns, but for `soon`, which says where that lies which is wanted next:
(array, at, step), or (array, at, step, row) if it lies in rows. At each i a line of it is asked for, and not
waited for: array[at + i * step], or array[at + i // ROWS * step + i % ROWS * row]. One now and then, for a
processor drops what it is asked for all at once. None asks for nothing.
`keep` is None, or an array (count, lanes), into which w is written as the float32 numbers that it is.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
LANES = 16 if WIDE else 8  # float32 numbers in a vector
ROWS = 16 if WIDE else 8  # rows at once: their accumulators and w fit in the registers

I64, F32 = ir.IntType(64), ir.FloatType()

HALF, QUARTER = ROWS // 2, ROWS // 4  # the heights of a last tile that holds few rows
GROUP = 32  # numbers of one output that share a scale where they are kept as bytes
NARROW = 4  # lanes enough where there is little beside each other: a narrow vector takes less time


@njit(error_model="numpy")
def scratch(rows: int, width: int) -> NDArray[np.float32]:
    """(rows, width) of any numbers, from the start of a line of the cache: or vectors would lie in two."""
    numbers = np.empty(rows * width + 16, np.float32)
    first = -(numbers.ctypes.data // 4) % 16
    return numbers[first : first + rows * width].reshape(rows, width)


@njit(error_model="numpy")
def tile_rows(all_rows: int, tile: int) -> int:
    """How many rows the micro-kernel computes for a tile: fewer than ROWS where the last needs no more."""
    left = all_rows - tile * ROWS
    return min(ROWS, (left + QUARTER - 1) // QUARTER * QUARTER)


def emit_tile_product(
    typing_context: Any,
    rows: Any,
    lanes: Any,
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
    soon: Any,
    keep: Any,
) -> Any:
    """The loop above. rows, lanes, go_on: literals · x, w: flat, as they are stored · out: flat float32."""
    sizes = isinstance(rows, types.IntegerLiteral) and isinstance(lanes, types.IntegerLiteral)
    if not sizes or not isinstance(go_on, types.BooleanLiteral):
        return None
    number, width = types.intp, lanes.literal_value
    vector = ir.VectorType(F32, width)
    signature = types.void(
        *(rows, lanes, go_on, number, x, number, number, number, w, number, number, out, number, number),
        *(soon, keep),
    )

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        _, _, _, count, _, x_at, x_row, x_step, _, w_at, w_step, _, out_at, out_row, *_ = arguments

        x, w = (Stored(context, builder, signature.args[index], arguments[index]) for index in (4, 8))
        x_rows = [x.after(builder.add(x_at, builder.mul(x_row, I64(m)))) for m in range(rows.literal_value)]
        out = builder.gep(data_of(context, builder, signature.args[11], arguments[11]), [out_at])
        targets = [
            builder.bitcast(builder.gep(out, [builder.mul(out_row, I64(m))]), vector.as_pointer())
            for m in range(rows.literal_value)
        ]
        first_totals = [
            builder.load(target, align=4) if go_on.literal_value else ir.Constant(vector, [0.0] * width)
            for target in targets
        ]

        before = builder.block
        head, body, after = (builder.append_basic_block(name) for name in ("tile", "step", "tile_end"))
        builder.branch(head)

        builder.position_at_end(head)
        i = builder.phi(I64)
        totals = [builder.phi(vector) for _ in x_rows]
        builder.cbranch(builder.icmp_signed("<", i, count), body, after)

        builder.position_at_end(body)
        columns = w.load(builder.add(w_at, builder.mul(i, w_step)), width)
        if keep != types.none:
            kept = builder.gep(data_of(context, builder, keep, arguments[15]), [builder.mul(i, I64(width))])
            builder.store(columns, builder.bitcast(kept, vector.as_pointer()), align=4)
        if soon != types.none:
            ask_for(context, builder, signature.args[14], arguments[14], i)
        x_offset = builder.mul(i, x_step)
        new_totals = [
            multiply_add(builder, broadcast(builder, row.load(x_offset, 1), width), columns, total)
            for row, total in zip(x_rows, totals, strict=True)
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
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            numbers = Stored(context, builder, signature.args[0], arguments[0]).load(arguments[1], lanes)
            data = data_of(context, builder, signature.args[2], arguments[2])
            target = builder.bitcast(builder.gep(data, [arguments[3]]), numbers.type.as_pointer())
            builder.store(numbers, target, align=4)
            return context.get_dummy_value()

        return types.void(source, types.intp, target, types.intp), generate

    return emit


copy_lanes: Any = intrinsic(emit_copy(LANES))
copy_number: Any = intrinsic(emit_copy(1))


class Stored:
    """Numbers in memory, loaded as float32.

    16-bit floats arrive as integers, for Numba has none on a CPU: bfloat16, which is the upper half of a
    float32, as uint16; float16 as int16. Bytes come with scales: for each GROUP steps of LANES bytes LANES
    scales and then LANES offsets, and a number is byte * scale + offset.
    """

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: Any, value: Any) -> None:
        self.builder, self.scales = builder, None
        is_pair = isinstance(kind, types.BaseTuple)
        if is_pair:
            kind, scales = kind
            self.scales = data_of(context, builder, scales, builder.extract_value(value, 1))
            value = builder.extract_value(value, 0)
        self.dtype, self.data = kind.dtype, data_of(context, builder, kind, value)

    def after(self, at: Any) -> Stored:
        """Those from number `at` on, counted anew; not for bytes."""
        rest = copy(self)
        rest.data = self.builder.gep(self.data, [at])
        return rest

    def load(self, at: Any, lanes: int) -> Any:
        """A vector of those from number `at` on; where they are bytes, LANES of a whole step."""
        builder, floats, whole = self.builder, ir.VectorType(F32, lanes), ir.VectorType(ir.IntType(32), lanes)
        if self.dtype == types.float32:
            return self._vector(self.data, at, F32, lanes)
        if self.dtype == types.int16:
            return builder.fpext(self._vector(self.data, at, ir.HalfType(), lanes), floats)
        if self.dtype == types.uint16:
            wide = builder.zext(self._vector(self.data, at, ir.IntType(16), lanes), whole)
            return builder.bitcast(builder.shl(wide, ir.Constant(whole, [16] * lanes)), floats)
        number = builder.uitofp(
            builder.zext(self._vector(self.data, at, ir.IntType(8), lanes), whole), floats
        )
        scales_at = builder.mul(builder.sdiv(at, I64(GROUP * LANES)), I64(2 * LANES))
        scale = self._vector(self.scales, scales_at, F32, lanes)
        offset = self._vector(self.scales, builder.add(scales_at, I64(LANES)), F32, lanes)
        return multiply_add(builder, number, scale, offset)

    def _vector(self, data: Any, at: Any, kind: Any, lanes: int) -> Any:
        place = self.builder.bitcast(self.builder.gep(data, [at]), ir.VectorType(kind, lanes).as_pointer())
        return self.builder.load(place, align=1)


def ask_for(context: Any, builder: ir.IRBuilder, kind: Any, soon: Any, i: Any) -> None:
    """Have the i-th line of `soon` brought into the cache. Any address will do."""
    array, at, step, *row = (builder.extract_value(soon, index) for index in range(len(kind)))
    line = builder.lshr(i, I64(ROWS.bit_length() - 1)) if row else i
    place = builder.add(at, builder.mul(line, step))
    if row:
        place = builder.add(place, builder.mul(builder.and_(i, I64(ROWS - 1)), row[0]))
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    address = builder.bitcast(builder.gep(Stored(context, builder, kind[0], array).data, [place]), byte)
    signature = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    prefetch = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    builder.call(prefetch, [address, number(0), number(3), number(1)])  # to read, to be kept, data


def data_of(context: Any, builder: ir.IRBuilder, kind: Any, array: Any) -> Any:
    """A pointer to an array's first number."""
    return context.make_array(kind)(context, builder, array).data


def multiply_add(builder: ir.IRBuilder, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of vectors, rounded once."""
    kind = ir.FunctionType(a.type, [a.type] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{a.type.count}f32")
    return builder.call(fma, [a, b, c])


def broadcast(builder: ir.IRBuilder, number: Any, lanes: int) -> Any:
    """A vector that holds a vector's only number in every lane."""
    every_lane = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(number, ir.Constant(number.type, ir.Undefined), every_lane)
