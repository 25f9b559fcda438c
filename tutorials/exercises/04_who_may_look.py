"""Write the mask of a packed row.

`lengths` says how many tokens each request has in the row, in order; each has at least one, and none has a
past. Return the matrix as a list of rows of True and False: entry j of row i says whether token i may look at
token j. It may look at tokens of its own request that are not later than itself, itself included.
"""


def who_may_look(lengths: list[int]) -> list[list[bool]]:
    """(T, T): may row i look at key j?"""
    raise NotImplementedError("write the body of who_may_look")
