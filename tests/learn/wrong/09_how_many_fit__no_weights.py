"""the blocks take more bytes than the weights leave"""


def how_many_fit(memory, weights, num_layers, num_kv_heads, head_dim, element_bytes, block_size, length):
    """Forgets that the weights are there, too."""
    blocks = memory // (2 * block_size * num_layers * num_kv_heads * head_dim * element_bytes)
    return blocks, blocks // -(-length // block_size)
