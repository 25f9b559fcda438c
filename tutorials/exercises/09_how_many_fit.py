"""How many requests fit into memory?

Given the bytes of a memory and of a model's weights, work out how many blocks the KV cache can have, and how
many requests of `length` tokens hold all their blocks at once.

Each token has a key and a value, in each layer, for each KV head, of `head_dim` numbers of `element_bytes`
bytes. Blocks have `block_size` tokens, and no two requests share one. The weights always leave room for at
least one block. Use whole numbers throughout.
"""


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
    raise NotImplementedError("write the body of how_many_fit")
