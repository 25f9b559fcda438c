"""a token sees a later one"""


def who_may_look(lengths):
    """Keeps requests apart, and forgets the order."""
    owner = [r for r, length in enumerate(lengths) for _ in range(length)]
    return [[a == b for b in owner] for a in owner]
