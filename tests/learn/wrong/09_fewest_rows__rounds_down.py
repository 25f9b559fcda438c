"""with that many rows it still waits for memory"""


def fewest_rows(weights, element_bytes, bandwidth, flops):
    """Rounds down."""
    return max(1, element_bytes * flops // (2 * bandwidth))
