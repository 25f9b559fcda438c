"""Make room for a request that grows.

`running` maps each running request, the oldest first, to the number of blocks it holds. `name` is one of them
and needs `needs` more blocks; `free` blocks are free. As long as that is too few, the newest running request
is preempted, and all its blocks become free. If the newest is `name` itself, it is preempted too, and that is
the end of it.

Return two things: the list of those that were preempted, in order, and whether `name` gets its blocks. Nobody
is preempted without need. Leave what you are given as it is.
"""


def make_room(running: dict[str, int], name: str, needs: int, free: int) -> tuple[list[str], bool]:
    """Who is preempted, in order, and whether `name` goes on."""
    raise NotImplementedError("write the body of make_room")
