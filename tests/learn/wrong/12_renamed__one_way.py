"""two of our blocks became one of theirs"""


def same_up_to_renaming(ours, theirs):
    """Looks from one side only."""
    if ours.keys() != theirs.keys() or any(len(ours[name]) != len(theirs[name]) for name in ours):
        return False
    renamed = {}
    return all(
        renamed.setdefault(one, other) == other
        for name in ours
        for one, other in zip(ours[name], theirs[name], strict=True)
    )
