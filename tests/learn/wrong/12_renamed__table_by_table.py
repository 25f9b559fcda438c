"""one of our blocks became two of theirs"""


def same_up_to_renaming(ours, theirs):
    """Renames anew in each table, so that a shared block may become two."""
    if ours.keys() != theirs.keys():
        return False
    for name in ours:
        pairs = set(zip(ours[name], theirs[name], strict=False))
        same = len(pairs) == len(set(ours[name])) == len(set(theirs[name]))
        if not same or len(ours[name]) != len(theirs[name]):
            return False
    return True
