"""e^x in float32 for the CPU loops, with the same bits in a vector and in a single number.

x is n * ln(2) + r with n whole and |r| <= ln(2) / 2. So e^x is 2^n, written straight into the bits of a
float, times e^r, for which a short series is enough. Only additions and fused multiply-adds, which IEEE 754
rounds alike wherever they stand; and no branch.

The formula is written once, for LLVM, and used for a number and for a vector: left to itself, the compiler
made vectors of some loops around it and not of others, which then took four times as long.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .numba_vectors import F32, LANES, data_of, multiply_add

LOG2_E = np.float32(1 / math.log(2))
LN_2_HIGH = np.float32(0.693359375)  # few bits, so that n * LN_2_HIGH is exact
LN_2_LOW = np.float32(math.log(2) - 0.693359375)

WHOLE = np.float32(1.5 * 2**23)  # a float32 of this size has no fraction: to add it is to round
LOWEST, HIGHEST = np.float32(-88), np.float32(89)  # e**x is 0 for the one, infinite for the other

SERIES = [np.float32(1 / math.factorial(k)) for k in range(7, -1, -1)]  # of e**r, the highest power first


def emit_exp(builder: ir.IRBuilder, x: Any) -> Any:
    """e**x within two units in the last place; 0 from x = -87.7 down, infinite from 88.4 up; NaN for NaN."""
    floats, lanes = x.type, getattr(x.type, "count", None)
    whole = ir.IntType(32) if lanes is None else ir.VectorType(ir.IntType(32), lanes)

    def constant(number: Any, kind: Any = floats) -> Any:
        number = float(number) if kind is floats else int(number)
        return ir.Constant(kind, number if lanes is None else [number] * lanes)

    lowest, highest = constant(LOWEST), constant(HIGHEST)
    y = builder.select(builder.fcmp_ordered("<", x, lowest), lowest, x)
    y = builder.select(builder.fcmp_ordered(">", y, highest), highest, y)
    shifted = multiply_add(builder, y, constant(LOG2_E), constant(WHOLE))
    n = builder.fsub(shifted, constant(WHOLE))
    r = multiply_add(builder, n, constant(-LN_2_HIGH), y)
    r = multiply_add(builder, n, constant(-LN_2_LOW), r)
    series = constant(SERIES[0])
    for coefficient in SERIES[1:]:
        series = multiply_add(builder, series, r, constant(coefficient))
    # 2**n: the last bits of `shifted` are n, from -127, which gives 0, to 128, infinity
    exponent = builder.shl(builder.bitcast(shifted, whole), constant(23, whole))
    power = builder.bitcast(builder.add(exponent, constant(127 << 23, whole)), floats)
    return builder.fmul(series, power)


def emit_number(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return emit_exp(builder, arguments[0])

    return types.float32(types.float32), generate


def emit_vector(typing_context: Any, numbers: Any, at: Any, bases: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(F32, LANES).as_pointer()
        numbers, bases = (data_of(context, builder, signature.args[i], arguments[i]) for i in (0, 2))
        place = builder.bitcast(builder.gep(numbers, [arguments[1]]), vector)
        base = builder.load(builder.bitcast(bases, vector), align=4)
        x = builder.fsub(builder.load(place, align=4), base)
        builder.store(emit_exp(builder, x), place, align=4)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, bases), generate


def emit_fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


exp: Any = intrinsic(emit_number)
"""e**x"""

exp_lanes: Any = intrinsic(emit_vector)
"""exp_lanes(numbers, at, bases): numbers[at + i] = e**(numbers[at + i] - bases[i]) for i below LANES."""

fma: Any = intrinsic(emit_fma)
"""a * b + c, rounded once."""
