"""one more request would have fitted"""


def how_many_fit(memory, weights, num_layers, num_kv_heads, head_dim, element_bytes, block_size, length):
    """Gives every request a block too many where its length is a multiple of the block size."""
    blocks = (memory - weights) // (2 * block_size * num_layers * num_kv_heads * head_dim * element_bytes)
    return blocks, blocks // (length // block_size + 1)
