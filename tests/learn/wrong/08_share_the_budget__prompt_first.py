"""the running ones did not get tokens in order"""


def share(running, waiting, budget, max_num_seqs):
    """Gets the largest gap out of the way first."""
    scheduled = {}
    let_in = list(waiting.items())[: max_num_seqs - len(running)]
    for name, gap in sorted(running.items(), key=lambda pair: -pair[1]) + let_in:
        if budget:
            scheduled[name] = min(gap, budget)
            budget -= scheduled[name]
    return scheduled
