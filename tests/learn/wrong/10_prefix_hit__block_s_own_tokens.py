"""a block was taken that nobody has computed"""


def prefix_hit(token_ids, cached, block_size):
    """Compares a block's own tokens and forgets those before them."""
    known = {part[-block_size:] for part in cached}
    hit = 0
    while hit + block_size < len(token_ids) and tuple(token_ids[hit : hit + block_size]) in known:
        hit += block_size
    return hit
