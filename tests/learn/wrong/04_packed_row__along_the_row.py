"""a position is not the token's place in its own text"""


def packed_row(requests):
    """Counts positions along the packed row."""
    tokens = [token for ids, done in requests for token in ids[done:]]
    owners = [r for r, (ids, done) in enumerate(requests) for _ in ids[done:]]
    return tokens, list(range(len(tokens))), owners
