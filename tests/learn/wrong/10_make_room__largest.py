"""a request was preempted before one that is newer"""


def make_room(running, name, needs, free):
    """Preempts whoever has most blocks, so that fewest are preempted."""
    preempted, left = [], dict(running)
    while needs > free:
        victim = max(left, key=left.get)
        preempted.append(victim)
        free += left.pop(victim)
        if victim == name:
            return preempted, False
    return preempted, True
