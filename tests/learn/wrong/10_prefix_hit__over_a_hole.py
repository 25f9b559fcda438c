"""a block was taken though one before it is missing"""


def prefix_hit(token_ids, cached, block_size):
    """Looks for the longest, and takes it as if all before it were there."""
    for end in range((len(token_ids) - 1) // block_size * block_size, 0, -block_size):
        if tuple(token_ids[:end]) in cached:
            return end
    return 0
