"""Say how many blocks a request must get before its next step.

A request holds `num_blocks` blocks of `block_size` slots. The keys and values of `num_computed` tokens are in
them, and the next step computes `num_tokens` more. Return how many blocks it has to take from the pool, so
that each of the new tokens has a slot: not one too few, and not one too many. It may hold more blocks than it
needs; none are given back here.
"""


def blocks_to_take(num_blocks: int, num_computed: int, num_tokens: int, block_size: int) -> int:
    """How many more blocks the request needs."""
    raise NotImplementedError("write the body of blocks_to_take")
