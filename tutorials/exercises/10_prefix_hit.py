"""How much of a prompt is in the prefix cache?

`token_ids` is a request's text. `cached` is what the pool remembers: for each full block that can be shared,
all tokens from the beginning of the text to the end of that block, as a tuple. So its lengths are multiples
of `block_size`.

Return how many tokens the request takes from the cache. It takes whole blocks, from the first one on, until
one is missing; a block behind a missing one is of no use. And it leaves at least its last token to compute.
"""


def prefix_hit(token_ids: list[int], cached: set[tuple[int, ...]], block_size: int) -> int:
    """Tokens that need not be computed."""
    raise NotImplementedError("write the body of prefix_hit")
