"""Pack what a step has to run into one row.

`requests` are pairs: all tokens that a request has so far, and how many of them are computed already. Each
runs the rest, which is at least one token.

Return three new lists of equal length, one entry for each token of the packed row: the tokens, in the order
of the requests; the position of each; and whose it is, as the request's index in `requests`.
"""


def packed_row(requests: list[tuple[list[int], int]]) -> tuple[list[int], list[int], list[int]]:
    """Tokens, positions and owners of the packed row."""
    raise NotImplementedError("write the body of packed_row")
