"""One result out of several: the last step for requests whose keys were shared out to several programs.

Each part has seen some keys, and has for each (query, head) its largest score, its total and its weighted
values, both relative to that largest score. Parts agree on the largest of all, scale theirs to it, and add
up: the online softmax's step with a part in place of a tile of keys. This is what is often called merging by
log-sum-exp; largest and total stay two numbers here, for in largest + log(total) the second would drown.

A request is cut at multiples of a fixed number of keys and its parts are added in order, PARTS at a time, so
its result does not depend on what else is in the batch.

Read next: triton_kv_write.py.
"""

# What a kernel is given has no Python type.
# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl
from torch import Tensor

from .configs import MERGE_PARTS, MERGE_WARPS, power_of_two
from .triton_softmax import exp2_factor, exponent_base


def merge_parts(parts: Tensor, sums: Tensor, merges: Tensor, scale: float, out: Tensor) -> None:
    """Write the rows of `out` (T, H, D) that `merges` names. The arguments are those of the kernel."""
    heads, dim = out.shape[1:]
    merge_kernel[(len(merges) * heads,)](
        parts, sums, merges, out, out.stride(), exp2_factor(scale),
        HEADS=heads, HEAD_DIM=dim, DIMS=power_of_two(dim), PARTS=MERGE_PARTS,
        num_warps=MERGE_WARPS, enable_fp_fusion=True,
    )  # fmt: skip


@triton.jit
def merge_kernel(
    parts, sums, merges, out, out_strides, factor,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One query token and one head.

    parts (part rows, H, D): weighted values · sums (part rows, H, 2): largest score and total ·
    merges (number, 4): token, its row in part 0, rows from one part to the next, number of parts
    """
    merge = merges + tl.program_id(0) // HEADS * 4
    head = tl.program_id(0) % HEADS
    token, first_row = tl.load(merge).to(tl.int64), tl.load(merge + 1).to(tl.int64)
    step, num_parts = tl.load(merge + 2), tl.load(merge + 3)
    dim = tl.arange(0, DIMS).to(tl.int64)
    largest, total = float("-inf"), 0.0
    weighted = tl.zeros([DIMS], tl.float32)
    for first in range(0, num_parts, PARTS):
        part = first + tl.arange(0, PARTS)  # (PARTS,)
        exists = part < num_parts
        row = (first_row + part * step) * HEADS + head  # (PARTS,)
        part_largest = tl.load(sums + 2 * row, mask=exists, other=float("-inf"))  # (PARTS,)
        part_total = tl.load(sums + 2 * row + 1, mask=exists, other=0.0)  # (PARTS,)
        in_part = exists[:, None] & (dim < HEAD_DIM)[None, :]
        values = tl.load(parts + row[:, None] * HEAD_DIM + dim[None, :], mask=in_part, other=0.0)
        new_largest = tl.maximum(largest, tl.max(part_largest, axis=0))
        base = exponent_base(new_largest)
        share = tl.exp2((part_largest - base) * factor)  # (PARTS,)
        shrink = tl.exp2((largest - base) * factor)
        total = total * shrink + tl.sum(part_total * share, axis=0)
        weighted = weighted * shrink + tl.sum(values * share[:, None], axis=0)  # (DIMS,)
        largest = new_largest
    if num_parts > 0:
        result = (weighted / tl.where(total == 0.0, 1.0, total)).to(out.dtype.element_ty)
        place = token * out_strides[0] + head * out_strides[1] + dim * out_strides[2]  # (DIMS,)
        tl.store(out + place, result, mask=dim < HEAD_DIM)
