"""Pack what a step has to run into one row: a solution."""


def packed_row(requests: list[tuple[list[int], int]]) -> tuple[list[int], list[int], list[int]]:
    """Tokens, positions and owners of the packed row."""
    tokens, positions, owners = [], [], []
    for index, (token_ids, num_computed) in enumerate(requests):
        for position in range(num_computed, len(token_ids)):
            tokens.append(token_ids[position])
            positions.append(position)
            owners.append(index)
    return tokens, positions, owners
