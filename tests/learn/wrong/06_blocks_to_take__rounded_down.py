"""a token of this step has no slot"""


def blocks_to_take(num_blocks, num_computed, num_tokens, block_size):
    """Counts full blocks only."""
    return max(0, (num_computed + num_tokens) // block_size - num_blocks)
