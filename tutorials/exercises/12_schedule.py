"""Choose a step as vLLM chooses it.

All of the course in one function: a token budget, blocks, preemption, and a queue. Requests are the objects
below. Change them, and change both lists: whoever comes in goes from `waiting` to the end of `running`.
Return how many tokens each request runs, in order.

First those that run, in order, while the budget lasts. Each wants all the tokens that it lacks, and gets as
many as the budget has left. For these it must hold blocks: `num_computed` and the new ones, rounded up to
whole blocks. If there are not enough free ones, the last of `running` is preempted, and the next last, until
there are. A preempted request gives up its blocks, has nothing computed, and goes to the front of `waiting`.
If that was the request itself, nobody behind it runs in this step.

Then those that wait, from the front, unless somebody was preempted in this step. The first one comes in if
there is budget left, if fewer than `max_num_seqs` run, and if blocks for *all* its tokens are free. It begins
with `hit` tokens computed (what the prefix cache has of it), runs as much of the rest as the budget has, and
takes the blocks for both. If the first one cannot come in, nobody behind it does.

A hit takes blocks like any other tokens here: no two requests share one. Leave `num_tokens` and `hit` alone,
and let `num_computed` be what was computed *before* this step: the caller adds what runs in it.
"""

from dataclasses import dataclass


@dataclass
class Request:
    """num_tokens: prompt and answer so far. num_computed: how many of them have their keys in the cache."""

    name: str
    num_tokens: int
    num_computed: int = 0
    num_blocks: int = 0
    hit: int = 0


def schedule(
    running: list[Request],
    waiting: list[Request],
    free_blocks: int,
    block_size: int,
    budget: int,
    max_num_seqs: int,
) -> dict[str, int]:
    """Tokens to run in this step, by the request's name, in order."""
    raise NotImplementedError("write the body of schedule")
