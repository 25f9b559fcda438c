"""a request that was preempted cannot go on"""


def make_room(running, name, needs, free):
    """Takes its own blocks and goes on."""
    preempted = []
    for newest in reversed(running):
        if needs <= free:
            break
        preempted.append(newest)
        free += running[newest]
    return preempted, needs <= free
