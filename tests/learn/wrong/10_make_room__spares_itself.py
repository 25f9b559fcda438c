"""it neither goes on nor gives up its own blocks"""


def make_room(running, name, needs, free):
    """Never preempts the one that grows."""
    preempted = []
    for newest in reversed(running):
        if needs <= free:
            break
        if newest != name:
            preempted.append(newest)
            free += running[newest]
    return preempted, needs <= free
