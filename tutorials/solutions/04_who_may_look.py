"""Write the mask of a packed row: a solution."""


def who_may_look(lengths: list[int]) -> list[list[bool]]:
    """(T, T): may row i look at key j?"""
    owner = [r for r, length in enumerate(lengths) for _ in range(length)]
    total = len(owner)
    return [[owner[i] == owner[j] and j <= i for j in range(total)] for i in range(total)]
