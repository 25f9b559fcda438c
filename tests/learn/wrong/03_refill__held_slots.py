"""a finished request is still there"""


def refill(running, finished, waiting, max_num_seqs):
    """Nobody leaves."""
    free = max_num_seqs - len(running)
    return running + waiting[:free], waiting[free:]
