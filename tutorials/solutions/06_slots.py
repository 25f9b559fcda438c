"""Say where the keys and values of new tokens go: a solution."""


def slots(block_table: list[int], block_size: int, start: int, num_tokens: int) -> list[int]:
    """The slot of each position from `start` to `start + num_tokens - 1`."""
    found = []
    for position in range(start, start + num_tokens):
        logical, offset = divmod(position, block_size)
        found.append(block_table[logical] * block_size + offset)
    return found
