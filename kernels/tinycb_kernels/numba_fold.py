"""Eight rows of numbers taken into one row: its largest, or its sum. Rows of lanes, as softmax has them.

Written for LLVM, as e^x is, because the compiler made single numbers of these loops: it undoes a loop over 16
lanes before it looks for vectors. In Python, for each lane

    rows = [numbers[at + row * lanes + lane] for row in range(8)]
    target[lane] = combine(target[lane], combine of the eight in pairs, pairs of pairs, and those)

in this order, whatever the width: so a lane has the same bits in a narrow row and in a wide one.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .numba_vectors import F32, I64, data_of

TOGETHER = 8  # rows in a pass, so that the target is touched less often


def fold(lanes: int, combine: Callable[[ir.IRBuilder, Any, Any], Any]) -> Any:
    """fold(...)(numbers, at, target): the eight rows of `lanes` from numbers[at] on are taken into target."""
    vector = ir.VectorType(F32, lanes).as_pointer()

    def emit(typing_context: Any, numbers: Any, at: Any, target: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            data, result = (data_of(context, builder, signature.args[i], arguments[i]) for i in (0, 2))
            places = [builder.add(arguments[1], I64(row * lanes)) for row in range(TOGETHER)]
            rows = [
                builder.load(builder.bitcast(builder.gep(data, [place]), vector), align=4) for place in places
            ]
            while len(rows) > 1:
                pairs = zip(rows[::2], rows[1::2], strict=True)
                rows = [combine(builder, left, right) for left, right in pairs]
            result = builder.bitcast(result, vector)
            builder.store(combine(builder, builder.load(result, align=4), rows[0]), result, align=4)
            return context.get_dummy_value()

        return types.void(numbers, types.intp, target), generate

    return intrinsic(emit)


def larger(builder: ir.IRBuilder, a: Any, b: Any) -> Any:
    """The larger of a and b; a where either is NaN. So none reaches the target, whose sum it will be in."""
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


def fold_largest(lanes: int) -> Any:
    """Of `fold`'s kind: the largest."""
    return fold(lanes, larger)


def fold_sum(lanes: int) -> Any:
    """Of `fold`'s kind: the sum."""
    return fold(lanes, lambda builder, a, b: builder.fadd(a, b))
