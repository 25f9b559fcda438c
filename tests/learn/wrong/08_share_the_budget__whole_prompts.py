"""the forward runs more tokens than the budget"""


def share(running, waiting, budget, max_num_seqs):
    """Continuous batching: a prompt runs whole."""
    places = max_num_seqs - len(running)
    return {**running, **dict(list(waiting.items())[:places])}
