"""Every launch configuration of the Triton kernels: one table, and how a call picks its line.

A table, because Triton's autotuner needs a GPU to decide anything, and tests compile every line of it for
sm_90 without one. A line must leave no register spilled and fit in 227 KiB of shared memory.

It starts nothing and does not import triton. Read next: triton_softmax.py.
"""

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Tile:
    """What one program works on.

    rows: (query, head) pairs. keys: of one turn of its loop. ahead: turns whose keys are loaded ahead of
    their use. part: with the paged kernel, keys of one program at most, a multiple of `keys`.
    """

    rows: int
    keys: int
    ahead: int
    part: int

    @property
    def constants(self) -> tuple[int, int, int]:
        """What a kernel is compiled for."""
        return self.rows, self.keys, self.ahead


@dataclass(frozen=True)
class Launch:
    """A tile for requests of few rows, such as decoding ones, and one for those of many."""

    few: Tile
    many: Tile
    num_warps: int


# (bits of a number, head dim rounded up to a power of two) -> its launch.
# float32 products in full precision use no tensor cores and keep operands in registers: small tiles.
ATTENTION: dict[tuple[int, int], Launch] = {
    (16, 16): Launch(Tile(16, 64, 2, 1024), Tile(64, 64, 2, 4096), 4),
    (16, 32): Launch(Tile(16, 32, 2, 1024), Tile(64, 64, 2, 4096), 4),
    (16, 64): Launch(Tile(16, 128, 2, 1024), Tile(128, 64, 2, 4096), 8),
    (16, 128): Launch(Tile(16, 64, 2, 512), Tile(128, 64, 2, 4096), 8),
    (16, 256): Launch(Tile(16, 32, 2, 512), Tile(64, 32, 2, 4096), 8),
    (32, 16): Launch(Tile(16, 16, 0, 512), Tile(32, 32, 0, 4096), 8),
    (32, 32): Launch(Tile(16, 16, 0, 512), Tile(32, 32, 0, 4096), 8),
    (32, 64): Launch(Tile(16, 16, 0, 512), Tile(32, 16, 0, 4096), 8),
    (32, 128): Launch(Tile(16, 32, 0, 512), Tile(16, 32, 0, 512), 8),
    (32, 256): Launch(Tile(16, 32, 0, 512), Tile(16, 32, 0, 512), 8),
}

# Registers of a thread at most. Left alone, the assembler aims for more programs side by side than help,
# and spills. 128: two programs of 8 warps on a multiprocessor. 255: all there are.
REGISTERS_FEW, REGISTERS_MANY = 128, 255

# Interpreted, a turn of the loop costs milliseconds whatever its size; warps and loading ahead mean nothing.
# Parts are short where rows are few, so that short requests of a test have several.
ATTENTION_INTERPRETED = Launch(Tile(16, 32, 0, 32), Tile(64, 32, 0, 512), 1)

# A request of at most so many tiles is cut at every `part` keys. More tiles keep a GPU busy as they are.
# Neither number may depend on the batch: another cut is another order of summing, and gives other bits.
SPLIT_TILES = 16

MERGE_PARTS = 16  # parts that are added at once
MERGE_WARPS = 4

WRITE_TOKENS = 16  # a program writes this many tokens of one KV head
WRITE_TOKENS_INTERPRETED = 256
WRITE_WARPS = 4


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def padded_head_dim(head_dim: int) -> int:
    """Triton's tiles have sides that are powers of two, and a matrix product needs at least 16."""
    return max(16, power_of_two(head_dim))


def attention_launch(dtype: torch.dtype, head_dim: int, interpreted: bool) -> Launch:
    """The table's line for a call, with fewer keys where the head dim makes them costly.

    If it is no multiple of 16, Triton cannot know that a row begins at a multiple of 16 bytes, and loads its
    numbers one by one, each with an address in registers.
    """
    if interpreted:
        return ATTENTION_INTERPRETED
    launch = ATTENTION[dtype.itemsize * 8, padded_head_dim(head_dim)]
    if head_dim % 16 == 0:
        return launch
    few, many = (replace(tile, keys=max(16, tile.keys // 4)) for tile in (launch.few, launch.many))
    return Launch(few, many, launch.num_warps)
