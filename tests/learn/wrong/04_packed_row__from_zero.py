"""a position is not the token's place in its own text"""


def packed_row(requests):
    """Lets each request begin with zero, also one that decodes."""
    tokens = [token for ids, done in requests for token in ids[done:]]
    positions = [i for ids, done in requests for i in range(len(ids) - done)]
    owners = [r for r, (ids, done) in enumerate(requests) for _ in ids[done:]]
    return tokens, positions, owners
