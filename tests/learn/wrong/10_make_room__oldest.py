"""a request was preempted before one that is newer"""


def make_room(running, name, needs, free):
    """Preempts from the wrong end."""
    preempted = []
    for oldest in running:
        if needs <= free:
            break
        preempted.append(oldest)
        free += running[oldest]
        if oldest == name:
            return preempted, False
    return preempted, True
