"""How many requests fit into memory: a solution."""


def how_many_fit(
    memory: int,
    weights: int,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    element_bytes: int,
    block_size: int,
    length: int,
) -> tuple[int, int]:
    """Blocks of the KV cache, and requests that hold all their blocks at once."""
    token_bytes = 2 * num_layers * num_kv_heads * head_dim * element_bytes
    num_blocks = (memory - weights) // (block_size * token_bytes)
    blocks_of_one = -(-length // block_size)
    return num_blocks, num_blocks // blocks_of_one
