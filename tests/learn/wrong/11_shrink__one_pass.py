"""a length can still be made less"""


def shrink(example, fails):
    """Takes each request out once, then makes lengths less, and never comes back to the requests."""
    for index in reversed(range(len(example))):
        without = example[:index] + example[index + 1 :]
        if fails(without):
            example = without
    for index in range(len(example)):
        while example[index] > 1:
            lesser = [*example[:index], example[index] - 1, *example[index + 1 :]]
            if not fails(lesser):
                break
            example = lesser
    return example
