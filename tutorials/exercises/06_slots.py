"""Say where the keys and values of new tokens go.

A request has computed `start` tokens, and the next step runs `num_tokens` more. `block_table` lists its
blocks in order: the first holds positions `0 … block_size - 1`, the next the `block_size` positions after
them, and so on. The blocks themselves may be anywhere in the cache.

Return the slots of the new tokens, as a list, in the order of their positions. Slot 0 is the first place of
block 0, and every block has `block_size` slots.
"""


def slots(block_table: list[int], block_size: int, start: int, num_tokens: int) -> list[int]:
    """The slot of each position from `start` to `start + num_tokens - 1`."""
    raise NotImplementedError("write the body of slots")
