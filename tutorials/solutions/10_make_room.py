"""Make room for a request that grows: a solution."""


def make_room(running: dict[str, int], name: str, needs: int, free: int) -> tuple[list[str], bool]:
    """Who is preempted, in order, and whether `name` goes on."""
    preempted: list[str] = []
    for newest in reversed(running):
        if needs <= free:
            break
        preempted.append(newest)
        free += running[newest]
        if newest == name:
            return preempted, False
    return preempted, True
