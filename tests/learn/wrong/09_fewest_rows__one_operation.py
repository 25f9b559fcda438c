"""fewer rows would have been enough"""


def fewest_rows(weights, element_bytes, bandwidth, flops):
    """Counts the multiplication and not the addition."""
    return -(-element_bytes * flops // bandwidth)
