"""a token runs again that is computed already"""


def packed_row(requests):
    """Packs all that the requests have."""
    tokens = [token for ids, _ in requests for token in ids]
    positions = [i for ids, _ in requests for i in range(len(ids))]
    return tokens, positions, [r for r, (ids, _) in enumerate(requests) for _ in ids]
