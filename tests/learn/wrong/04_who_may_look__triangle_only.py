"""a token sees a stranger's"""


def who_may_look(lengths):
    """The mask of one long text."""
    total = sum(lengths)
    return [[j <= i for j in range(total)] for i in range(total)]
