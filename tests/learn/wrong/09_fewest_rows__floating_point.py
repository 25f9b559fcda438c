"""with that many rows it still waits for memory"""

import math


def fewest_rows(weights, element_bytes, bandwidth, flops):
    """Rounds twice: the division loses what is left over."""
    return math.ceil(element_bytes * flops / (2 * bandwidth))
