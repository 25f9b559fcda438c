"""a token does not see itself"""


def who_may_look(lengths):
    """Earlier, where it should be not later."""
    owner = [r for r, length in enumerate(lengths) for _ in range(length)]
    return [[a == b and j < i for j, b in enumerate(owner)] for i, a in enumerate(owner)]
