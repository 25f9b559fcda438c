"""a request can still be taken out"""


def shrink(example, fails):
    """Makes lengths less, and takes nobody out."""
    for index, length in enumerate(example):
        lesser = [*example[:index], length - 1, *example[index + 1 :]]
        if length > 1 and fails(lesser):
            return shrink(lesser, fails)
    return list(example)
