"""Where does a product stop waiting for memory?

A matrix of `weights` numbers, each of `element_bytes` bytes, is multiplied with some rows. Every weight is
read once, however many rows there are, and takes part in two operations a row, a multiplication and an
addition. The machine moves `bandwidth` bytes a second and does `flops` operations a second, both at the same
time.

Return the fewest rows at which computing takes at least as long as reading. What is given are
whole numbers, and so is the answer: leave floating point out of it.
"""


def fewest_rows(weights: int, element_bytes: int, bandwidth: int, flops: int) -> int:
    """The fewest rows at which the product is no longer bandwidth-bound."""
    raise NotImplementedError("write the body of fewest_rows")
