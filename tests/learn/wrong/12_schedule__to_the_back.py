"""a preempted request is not at the front of the queue"""

from dataclasses import dataclass


@dataclass
class Request:
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
    """Puts whoever is preempted behind those that wait."""
    chosen: dict[str, int] = {}
    preempted = False
    index = 0
    while index < len(running) and budget > 0:
        request = running[index]
        count = min(request.num_tokens - request.num_computed, budget)
        needs = blocks_for(request.num_computed + count, block_size) - request.num_blocks
        while needs > free_blocks:
            victim = running.pop()
            free_blocks += victim.num_blocks
            victim.num_blocks = victim.num_computed = 0
            waiting.append(victim)
            preempted = True
            if victim is request:
                break
        if index == len(running):  # it was itself the last
            break
        if needs > 0:
            request.num_blocks += needs
            free_blocks -= needs
        chosen[request.name] = count
        budget -= count
        index += 1
    while waiting and not preempted and budget > 0 and len(running) < max_num_seqs:
        request = waiting[0]
        if blocks_for(request.num_tokens, block_size) > free_blocks:
            break
        running.append(waiting.pop(0))
        request.num_computed = request.hit
        count = min(request.num_tokens - request.hit, budget)
        request.num_blocks = blocks_for(request.hit + count, block_size)
        free_blocks -= request.num_blocks
        chosen[request.name] = count
        budget -= count
    return chosen


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Rounded up."""
    return -(-num_tokens // block_size)
