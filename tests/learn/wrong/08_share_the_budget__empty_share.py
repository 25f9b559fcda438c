"""a request is in the forward with no token"""


def share(running, waiting, budget, max_num_seqs):
    """Forgets to stop when the budget is spent."""
    scheduled = {}
    let_in = list(waiting.items())[: max_num_seqs - len(running)]
    for name, gap in [*running.items(), *let_in]:
        scheduled[name] = min(gap, budget)
        budget -= scheduled[name]
    return scheduled
