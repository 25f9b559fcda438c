"""What a processor's vector registers can do, for Numba, which has no name for them: as LLVM knows it.

A vector is LANES float32 numbers, or fewer. The functions here emit LLVM's instructions for the intrinsics
in numba_tile.py, numba_exp.py and numba_fold.py; `Stored` loads numbers that are kept smaller in memory.

    float32                                  as they are
    uint16    bfloat16                       the upper half of a float32
    int16     float16
    uint8     bytes, with scales             byte * scale + offset, see numba_bytes.py
    int32     pairs of bfloat16              not widened: the processor multiplies and adds two at once
"""

from __future__ import annotations

from copy import copy
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils

FEATURES = llvm.get_host_cpu_features()
WIDE = bool(FEATURES.get("avx512f"))
HAS_PAIRS = WIDE and bool(FEATURES.get("avx512bf16"))
LANES = 16 if WIDE else 8  # float32 numbers in a vector
GROUP = 32  # numbers of one output that share a scale where they are kept as bytes

I64, F32 = ir.IntType(64), ir.FloatType()
BYTE, HALF_INT, WHOLE_INT = ir.IntType(8), ir.IntType(16), ir.IntType(32)


class BFloat(ir.Type):
    """LLVM's bfloat, for which llvmlite has no class."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


class Stored:
    """An array's memory, or a pair (bytes, scales): for each GROUP steps of LANES bytes LANES scales and then
    LANES offsets. Numba has no 16-bit floats on a CPU, so that they arrive as integers."""

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: Any, value: Any) -> None:
        self.builder, self.scales = builder, None  # type: ir.IRBuilder, Any
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

    def as_pairs(self) -> Stored:
        """The same memory, in which there are pairs."""
        pairs = copy(self)
        pairs.dtype, pairs.data = types.int32, self.builder.bitcast(self.data, WHOLE_INT.as_pointer())
        return pairs

    def load(self, at: Any, lanes: int) -> Any:
        """A vector of those from number `at` on, as float32 unless they are pairs; where they are bytes,
        LANES of a whole step."""
        builder, floats, whole = self.builder, ir.VectorType(F32, lanes), ir.VectorType(WHOLE_INT, lanes)
        if self.dtype == types.float32:
            return self._vector(self.data, at, F32, lanes)
        if self.dtype == types.int32:
            return self._vector(self.data, at, WHOLE_INT, lanes)
        if self.dtype == types.int16:
            return builder.fpext(self._vector(self.data, at, ir.HalfType(), lanes), floats)
        if self.dtype == types.uint16:
            wide = builder.zext(self._vector(self.data, at, HALF_INT, lanes), whole)
            return builder.bitcast(builder.shl(wide, ir.Constant(whole, [16] * lanes)), floats)
        number = builder.uitofp(builder.zext(self._vector(self.data, at, BYTE, lanes), whole), floats)
        scales_at = builder.mul(builder.sdiv(at, I64(GROUP * LANES)), I64(2 * LANES))
        scale = self._vector(self.scales, scales_at, F32, lanes)
        offset = self._vector(self.scales, builder.add(scales_at, I64(LANES)), F32, lanes)
        return multiply_add(builder, number, scale, offset)

    def load_everywhere(self, at: Any, lanes: int) -> Any:
        """Number `at` in every lane; not for bytes."""
        if self.dtype != types.uint16:
            return in_every_lane(self.builder, self.load(at, 1), lanes)
        # Both halves of each lane, of which the lower is then shifted out: two instructions in place of four.
        halves = in_every_lane(self.builder, self._vector(self.data, at, HALF_INT, 1), 2 * lanes)
        whole = ir.VectorType(WHOLE_INT, lanes)
        shifted = self.builder.shl(self.builder.bitcast(halves, whole), ir.Constant(whole, [16] * lanes))
        return self.builder.bitcast(shifted, ir.VectorType(F32, lanes))

    def _vector(self, data: Any, at: Any, kind: Any, lanes: int) -> Any:
        place = self.builder.bitcast(self.builder.gep(data, [at]), ir.VectorType(kind, lanes).as_pointer())
        return self.builder.load(place, align=1)


def narrowed(builder: ir.IRBuilder, number: Any, dtype: Any) -> Any:
    """A float32 number as arrays of this dtype keep it: the nearest there is, of two the even one."""
    if dtype == types.uint16:
        bits = builder.bitcast(number, WHOLE_INT)
        is_odd = builder.and_(builder.lshr(bits, WHOLE_INT(16)), WHOLE_INT(1))
        rounded = builder.lshr(builder.add(builder.add(bits, WHOLE_INT(0x7FFF)), is_odd), WHOLE_INT(16))
        is_number = builder.fcmp_ordered("ord", number, number)
        return builder.trunc(builder.select(is_number, rounded, WHOLE_INT(0x7FC0)), HALF_INT)
    if dtype == types.int16:
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), HALF_INT)
    return number


def widened(builder: ir.IRBuilder, number: Any, dtype: Any) -> Any:
    """What is kept like that, as float32 again."""
    if dtype == types.uint16:
        return builder.bitcast(builder.shl(builder.zext(number, WHOLE_INT), WHOLE_INT(16)), F32)
    if dtype == types.int16:
        return builder.fpext(builder.bitcast(number, ir.HalfType()), F32)
    return number


def data_of(context: Any, builder: ir.IRBuilder, kind: Any, array: Any) -> Any:
    """A pointer to an array's first number."""
    return context.make_array(kind)(context, builder, array).data


def multiply_add(builder: ir.IRBuilder, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of numbers or vectors, rounded once."""
    kind = ir.FunctionType(a.type, [a.type] * 3)
    name = "llvm.fma.f32" if a.type == F32 else f"llvm.fma.v{a.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


def add_pairs(builder: ir.IRBuilder, a: Any, b: Any, c: Any) -> Any:
    """c + both products of each pair of a and b, rounded to float32 on the way. Only where HAS_PAIRS."""
    pairs = ir.VectorType(BFloat(), 2 * LANES)
    kind = ir.FunctionType(c.type, [c.type, pairs, pairs])
    dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    return builder.call(dot, [c, builder.bitcast(a, pairs), builder.bitcast(b, pairs)])


def in_every_lane(builder: ir.IRBuilder, number: Any, lanes: int) -> Any:
    """A vector that holds a vector's only number in every lane."""
    first = ir.Constant(ir.VectorType(WHOLE_INT, lanes), [0] * lanes)
    return builder.shuffle_vector(number, ir.Constant(number.type, ir.Undefined), first)


def prefetch(builder: ir.IRBuilder, address: Any, nearness: int) -> None:
    """Have a line brought into the core's first cache (nearness 3), or only into its second (1)."""
    byte = BYTE.as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [byte, WHOLE_INT, WHOLE_INT, WHOLE_INT])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    to_read, data = WHOLE_INT(0), WHOLE_INT(1)
    builder.call(function, [builder.bitcast(address, byte), to_read, WHOLE_INT(nearness), data])
