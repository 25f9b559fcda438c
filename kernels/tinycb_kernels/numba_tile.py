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

w is float32, or kept smaller and widened as it is loaded, one vector at a time (numba_vectors.py). If it is
pairs, so is x, whatever its type says: i counts pairs, and a step adds two products.

Memory and arithmetic would take turns, but for `soon`, which says where that lies which is wanted next. At
each i a line of it is asked for, and not waited for. None asks for nothing; (array, at, step) asks for
array[at + i * step]; and (array, at, step, row), for what lies in rows and is wanted later, for
array[at + i // ROWS * step + i % ROWS * row], only as near as the core's second cache, which can wait for
more lines at once.
`keep` is None, or an array (count, lanes), into which w is written as the float32 numbers that it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .numba_vectors import (
    F32,
    I64,
    LANES,
    WIDE,
    Stored,
    add_pairs,
    data_of,
    multiply_add,
    narrowed,
    prefetch,
    widened,
)

ROWS = 16 if WIDE else 8  # rows at once: their accumulators and w fit in the registers

HALF, QUARTER = ROWS // 2, ROWS // 4  # the heights of a last tile that holds few rows
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
        if w.dtype == types.int32:
            x = x.as_pairs()
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
            builder.store(
                builder.bitcast(columns, vector), builder.bitcast(kept, vector.as_pointer()), align=4
            )
        if soon != types.none:
            ask_for(context, builder, signature.args[14], arguments[14], i)
        x_offset = builder.mul(i, x_step)
        add_product = add_pairs if w.dtype == types.int32 else multiply_add
        new_totals = [
            add_product(builder, columns, row.load_everywhere(x_offset, width), total)
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


def emit_as_stored(typing_context: Any, number: Any, like: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return narrowed(builder, arguments[0], like.dtype)

    return like.dtype(types.float32, like), generate


def emit_rounded(typing_context: Any, number: Any, like: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return widened(builder, narrowed(builder, arguments[0], like.dtype), like.dtype)

    return types.float32(types.float32, like), generate


as_stored: Any = intrinsic(emit_as_stored)
"""as_stored(number, like): the float32 number as the array `like` keeps it."""

rounded: Any = intrinsic(emit_rounded)
"""rounded(number, like): the float32 number that it comes back as."""


def ask_for(context: Any, builder: ir.IRBuilder, kind: Any, soon: Any, i: Any) -> None:
    """Have the i-th line of `soon` brought into a cache. Any address will do."""
    array, at, step, *row = (builder.extract_value(soon, index) for index in range(len(kind)))
    line = builder.lshr(i, I64(ROWS.bit_length() - 1)) if row else i
    place = builder.add(at, builder.mul(line, step))
    if row:
        place = builder.add(place, builder.mul(builder.and_(i, I64(ROWS - 1)), row[0]))
    prefetch(builder, builder.gep(Stored(context, builder, kind[0], array).data, [place]), 1 if row else 3)
