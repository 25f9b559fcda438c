"""a request overtook one that came before it"""


def refill(running, finished, waiting, max_num_seqs):
    """Takes the newest of the queue."""
    runs, waits = [name for name in running if name not in finished], list(waiting)
    while waits and len(runs) < max_num_seqs:
        runs.append(waits.pop())
    return runs, waits
