"""Share out one forward's tokens: a solution."""


def share(running: dict[str, int], waiting: dict[str, int], budget: int, max_num_seqs: int) -> dict[str, int]:
    """Tokens that each request runs in the next forward."""
    scheduled: dict[str, int] = {}
    let_in = list(waiting.items())[: max_num_seqs - len(running)]
    for name, gap in [*running.items(), *let_in]:
        if budget == 0:
            break
        scheduled[name] = min(gap, budget)
        budget -= scheduled[name]
    return scheduled
