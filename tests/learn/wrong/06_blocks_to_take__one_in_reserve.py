"""a block was taken that no token of this step needs"""


def blocks_to_take(num_blocks, num_computed, num_tokens, block_size):
    """Takes one more when the last block gets full."""
    return max(0, (num_computed + num_tokens) // block_size + 1 - num_blocks)
