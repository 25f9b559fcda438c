"""a block was taken that nobody has computed"""


def prefix_hit(token_ids, cached, block_size):
    """Counts equal tokens, whole block or not."""
    best = 0
    for part in cached:
        same = 0
        while same < min(len(part), len(token_ids) - 1) and part[same] == token_ids[same]:
            same += 1
        best = max(best, same)
    return best
