"""what is left does not fail any more"""


def shrink(example, fails):
    """Returns the last one tried."""
    while fails(example) and example:
        if len(example) > 1:
            example = example[1:]
        elif example[0] > 1:
            example = [example[0] - 1]
        else:
            break
    return example
