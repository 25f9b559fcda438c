"""a place stayed empty while somebody waited"""


def refill(running, finished, waiting, max_num_seqs):
    """Static batching: nobody comes in before all are done."""
    going_on = [name for name in running if name not in finished]
    if going_on:
        return going_on, list(waiting)
    return waiting[:max_num_seqs], waiting[max_num_seqs:]
