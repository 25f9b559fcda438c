"""nothing is left to compute, so there would be no logits"""


def prefix_hit(token_ids, cached, block_size):
    """Takes the last token from the cache, too."""
    hit = 0
    while hit + block_size <= len(token_ids) and tuple(token_ids[: hit + block_size]) in cached:
        hit += block_size
    return hit
