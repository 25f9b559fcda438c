"""Say how many blocks a request must get before its next step: a solution."""


def blocks_to_take(num_blocks: int, num_computed: int, num_tokens: int, block_size: int) -> int:
    """How many more blocks the request needs."""
    missing = num_computed + num_tokens - num_blocks * block_size  # slots
    if missing <= 0:
        return 0
    return -(-missing // block_size)  # rounded up
