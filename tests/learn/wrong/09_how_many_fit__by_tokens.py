"""the requests need more blocks than there are"""


def how_many_fit(memory, weights, num_layers, num_kv_heads, head_dim, element_bytes, block_size, length):
    """Divides tokens by tokens, as if blocks could be shared."""
    blocks = (memory - weights) // (2 * block_size * num_layers * num_kv_heads * head_dim * element_bytes)
    return blocks, blocks * block_size // length
