"""How much of a prompt is in the prefix cache: a solution."""


def prefix_hit(token_ids: list[int], cached: set[tuple[int, ...]], block_size: int) -> int:
    """Tokens that need not be computed."""
    hit = 0
    while hit + block_size < len(token_ids) and tuple(token_ids[: hit + block_size]) in cached:
        hit += block_size
    return hit
