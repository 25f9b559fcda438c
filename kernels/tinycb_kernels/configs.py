"""Every launch configuration of the Triton kernels: one table, and how a call picks its line.

A table, because Triton's autotuner needs a GPU to decide anything, and tests compile every line of it for
sm_90 without one. A line must leave no register spilled and fit in 227 KiB of shared memory.

It starts nothing and does not import triton. Read next: triton_softmax.py.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Launch:
    """rows: (query, head) pairs of a program · keys: of one turn of its loop · the rest is Triton's."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int


# (bits of a number, head dim rounded up to a power of two) -> a launch for few rows and one for many.
# float32 products in full precision use no tensor cores and keep operands in registers: small tiles.
ATTENTION: dict[tuple[int, int], tuple[Launch, Launch]] = {
    (16, 16): (Launch(16, 64, 4, 3), Launch(64, 64, 4, 3)),
    (16, 32): (Launch(16, 32, 4, 3), Launch(64, 64, 4, 3)),
    (16, 64): (Launch(16, 64, 4, 3), Launch(64, 64, 8, 3)),
    (16, 128): (Launch(16, 64, 4, 3), Launch(64, 64, 8, 3)),
    (16, 256): (Launch(16, 32, 4, 2), Launch(64, 32, 8, 2)),
    (32, 16): (Launch(16, 32, 4, 1), Launch(32, 32, 4, 1)),
    (32, 32): (Launch(16, 32, 4, 1), Launch(32, 32, 4, 1)),
    (32, 64): (Launch(16, 16, 4, 1), Launch(32, 32, 4, 1)),
    (32, 128): (Launch(16, 16, 8, 1), Launch(16, 16, 8, 1)),
    (32, 256): (Launch(16, 32, 8, 1), Launch(16, 32, 8, 1)),
}

# Interpreted, a program costs milliseconds whatever its size, so tiles are large; warps mean nothing.
ATTENTION_INTERPRETED = Launch(64, 128, 1, 1)

WRITE_TOKENS = 16  # a program writes this many tokens of one KV head
WRITE_TOKENS_INTERPRETED = 256
WRITE_WARPS = 4


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def padded_head_dim(head_dim: int) -> int:
    """Triton's tiles have sides that are powers of two, and a matrix product needs at least 16."""
    return max(16, power_of_two(head_dim))


def attention_launch(dtype: torch.dtype, head_dim: int, rows_per_request: int, interpreted: bool) -> Launch:
    """The launch for a batch whose requests have this many (query, head) pairs for a KV head, on average.

    The average and not the largest: the latter is on the device, and asking for it would wait for the device.
    """
    if interpreted:
        return ATTENTION_INTERPRETED
    few, many = ATTENTION[dtype.itemsize * 8, padded_head_dim(head_dim)]
    return few if rows_per_request <= few.rows else many
