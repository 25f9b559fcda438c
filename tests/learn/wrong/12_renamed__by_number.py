"""tables that differ in the numbers only do not pass for the same"""


def same_up_to_renaming(ours, theirs):
    """Compares the numbers themselves."""
    return ours == theirs
