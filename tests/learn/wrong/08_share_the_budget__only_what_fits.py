"""a place and tokens were left while somebody waited"""


def share(running, waiting, budget, max_num_seqs):
    """Lets a prompt in only if it fits whole."""
    scheduled = {}
    for name, gap in running.items():
        if budget:
            scheduled[name] = min(gap, budget)
            budget -= scheduled[name]
    for name, gap in list(waiting.items())[: max_num_seqs - len(running)]:
        if gap > budget:
            break
        scheduled[name] = gap
        budget -= gap
    return scheduled
