"""a length can still be made less"""


def shrink(example, fails):
    """Takes requests out, and leaves the lengths as they are."""
    for index in range(len(example)):
        without = example[:index] + example[index + 1 :]
        if fails(without):
            return shrink(without, fails)
    return list(example)
