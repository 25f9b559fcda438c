"""Choose who is in the next forward: a solution."""


def refill(
    running: list[str], finished: set[str], waiting: list[str], max_num_seqs: int
) -> tuple[list[str], list[str]]:
    """Who runs in the next forward, and who waits after that."""
    going_on = [name for name in running if name not in finished]
    free = max_num_seqs - len(going_on)
    return going_on + waiting[:free], waiting[free:]
