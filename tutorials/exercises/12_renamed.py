"""Are these the same blocks under other numbers?

Two engines served the same requests. Each gave its blocks numbers of its own, so block 7 here may be block 3
there. `ours` and `theirs` are the block tables of one step: a request's name, and its blocks in order. They
are the same up to renaming if there is one way of renaming *our* numbers, for all tables together, that gives
theirs: equal numbers become equal numbers, and different ones stay different.

Return whether there is. Leave both tables as they are.
"""


def same_up_to_renaming(ours: dict[str, list[int]], theirs: dict[str, list[int]]) -> bool:
    """Whether both have the same requests, and their blocks differ in nothing but the numbers."""
    raise NotImplementedError("write the body of same_up_to_renaming")
