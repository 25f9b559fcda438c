"""Choose who is in the next forward.

You are the scheduler between two forwards. `running` are the requests of the forward that has just ended,
in order; `finished` are those of them that are done; `waiting` is the queue, the longest-waiting first; and
there are `max_num_seqs` places.

Return two new lists: who runs next, and who still waits. Whoever is done leaves; those that go on stay in
their order, before the newcomers; free places are filled from the head of the queue, at once. Leave the lists
that you are given as they are.
"""


def refill(
    running: list[str], finished: set[str], waiting: list[str], max_num_seqs: int
) -> tuple[list[str], list[str]]:
    """Who runs in the next forward, and who waits after that."""
    raise NotImplementedError("write the body of refill")
