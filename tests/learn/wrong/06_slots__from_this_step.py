"""a token overwrote one that had been computed before"""


def slots(block_table, block_size, start, num_tokens):
    """Counts from the first token of the step."""
    return [block_table[i // block_size] * block_size + i % block_size for i in range(num_tokens)]
