"""Where a product stops waiting for memory: a solution."""


def fewest_rows(weights: int, element_bytes: int, bandwidth: int, flops: int) -> int:
    """The fewest rows at which the product is no longer bandwidth-bound."""
    # weights * element_bytes / bandwidth <= 2 * weights * rows / flops, solved for rows, rounded up
    return -(-element_bytes * flops // (2 * bandwidth))
