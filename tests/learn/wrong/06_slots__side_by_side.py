"""a token was put into a block that is not the request's"""


def slots(block_table, block_size, start, num_tokens):
    """As if the blocks lay side by side after the first."""
    return [block_table[0] * block_size + position for position in range(start, start + num_tokens)]
