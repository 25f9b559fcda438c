"""with that many rows it still waits for memory"""


def fewest_rows(weights, element_bytes, bandwidth, flops):
    """Reads weights, as if each were one byte."""
    return -(-flops // (2 * bandwidth))
