"""somebody was preempted though enough was free"""


def make_room(running, name, needs, free):
    """Wants a block to be left over."""
    preempted = []
    for newest in reversed(running):
        if needs < free:
            break
        preempted.append(newest)
        free += running[newest]
        if newest == name:
            return preempted, False
    return preempted, True
