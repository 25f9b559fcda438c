"""Are these the same blocks under other numbers? A solution."""


def same_up_to_renaming(ours: dict[str, list[int]], theirs: dict[str, list[int]]) -> bool:
    """Whether both have the same requests, and their blocks differ in nothing but the numbers."""
    if ours.keys() != theirs.keys():
        return False
    renamed: dict[int, int] = {}
    back: dict[int, int] = {}
    for name, table in ours.items():
        if len(table) != len(theirs[name]):
            return False
        for one, other in zip(table, theirs[name], strict=True):
            if renamed.setdefault(one, other) != other or back.setdefault(other, one) != one:
                return False
    return True
