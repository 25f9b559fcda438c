"""fewer than no blocks were taken"""


def blocks_to_take(num_blocks, num_computed, num_tokens, block_size):
    """Forgets that a request may hold more than it needs."""
    return -(-(num_computed + num_tokens) // block_size) - num_blocks
