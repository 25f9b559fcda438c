"""the list that was given was changed"""


def shrink(example, fails):
    """Right, but it works on the list that it was given."""
    found = True
    while found:
        found = False
        for index in range(len(example)):
            length = example.pop(index)
            if fails(example):
                found = True
                break
            example.insert(index, length)
            if length > 1:
                example[index] = length - 1
                if fails(example):
                    found = True
                    break
                example[index] = length
    return example
