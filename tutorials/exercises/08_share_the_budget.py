"""Share out one forward's tokens.

You are the chunked scheduler, and memory is plentiful. `running` maps each running request, in order, to its
gap: the tokens that it has yet to compute. A gap of one is a decode. `waiting` is the same for the queue, the
longest-waiting first. `budget` is the most tokens that the forward may run, and at most `max_num_seqs`
requests may run at once.

Return a new dict from name to number of tokens, in the order in which they got them, of those that run at
least one. Running requests come first, in order; then the queue, for as long as there are places and
tokens. Each gets its whole gap, or what is left of the budget if that is less. A running request keeps its
place even if the budget is spent before its turn. Leave what you are given as it is.
"""


def share(running: dict[str, int], waiting: dict[str, int], budget: int, max_num_seqs: int) -> dict[str, int]:
    """Tokens that each request runs in the next forward."""
    raise NotImplementedError("write the body of share")
