"""a block was taken that no token of this step needs"""


def blocks_to_take(num_blocks, num_computed, num_tokens, block_size):
    """Forgets that the last block still has room."""
    return -(-num_tokens // block_size)
