"""tokens do not lie in their block in order"""


def slots(block_table, block_size, start, num_tokens):
    """Fills a block from its end."""
    return [
        block_table[p // block_size] * block_size + block_size - 1 - p % block_size
        for p in range(start, start + num_tokens)
    ]
