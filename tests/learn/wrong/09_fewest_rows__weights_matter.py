"""fewer rows would have been enough"""


def fewest_rows(weights, element_bytes, bandwidth, flops):
    """Lets the number of weights stand on one side only."""
    return -(-weights * element_bytes * flops // (2 * bandwidth))
