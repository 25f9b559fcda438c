"""two tokens were put into one slot"""


def slots(block_table, block_size, start, num_tokens):
    """The block alone."""
    return [block_table[p // block_size] * block_size for p in range(start, start + num_tokens)]
