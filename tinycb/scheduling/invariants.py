"""What must hold in every step, whatever the policy. Checked after each step with `EngineConfig(check=True)`.

free + owned = all blocks                     a block's reference count = the block tables that hold it
no two requests write one slot                every scheduled request has blocks for what it writes
chunked stays within its budget               some request advances, or none can
"""

from __future__ import annotations

from tinycb.scheduling.block_pool import BlockPool
from tinycb.scheduling.chunked import ChunkedScheduler
from tinycb.scheduling.scheduler import Scheduler, SchedulerOutput

__all__ = ["InvariantError", "check_choice", "check_pool"]


class InvariantError(AssertionError):
    """The scheduler or the block pool broke one of its promises; the message names the block or request."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantError(message)


def check_pool(pool: BlockPool, block_tables: dict[str, list[int]]) -> None:
    """Every block is accounted for exactly once, and every cached prefix can be found."""
    holders: list[list[str]] = [[] for _ in pool.blocks]
    for request_id, table in block_tables.items():
        for block_id in table:
            holders[block_id].append(request_id)
    for block, held_by in zip(pool.blocks, holders, strict=True):
        name = f"block {block.block_id}"
        require(
            block.ref_count == len(held_by),
            f"{name}: its reference count is {block.ref_count}, the block tables that hold it: {held_by}",
        )
        is_free = block.block_id in pool.free_list
        require(is_free == (not held_by), f"{name}: free is {is_free}, held by {held_by}")
        found = block.prefix is not None and block in pool.cached.get(block.prefix.hash, ())
        require(found == (block.prefix is not None), f"{name} holds a prefix that the cache does not list")
    listed = sum(len(blocks) for blocks in pool.cached.values())
    holding = sum(block.prefix is not None for block in pool.blocks)
    require(listed == holding, f"the prefix cache lists {listed} blocks and {holding} hold a prefix")


def check_choice(scheduler: Scheduler, output: SchedulerOutput) -> None:
    """The step can be run: slots are there and nobody shares one, and somebody advances."""
    requests = (*scheduler.running, *scheduler.waiting)
    check_pool(scheduler.pool, {request.request_id: request.block_table for request in requests})
    size = scheduler.pool.block_size
    writer: dict[int, str] = {}
    for request in output.requests:
        name, num_tokens = request.request_id, output.scheduled.get(request.request_id, 0)
        start = output.num_computed.get(name, 0)
        end, blocks = start + num_tokens, len(request.block_table)
        require(blocks * size >= end, f"{name} writes up to position {end - 1} and has {blocks} blocks")
        for position in range(start, end):
            slot = request.block_table[position // size] * size + position % size
            require(slot not in writer, f"{name} and {writer.get(slot)} both write slot {slot}")
            writer[slot] = name
    require(bool(output.scheduled) or not requests, "requests wait and nobody runs")
    limits = scheduler.config
    require(
        len(scheduler.running) <= limits.max_num_seqs,
        f"{len(scheduler.running)} requests run, max_num_seqs is {limits.max_num_seqs}",
    )
    if isinstance(scheduler, ChunkedScheduler):
        total, budget = sum(output.scheduled.values()), limits.max_num_batched_tokens
        require(total <= budget, f"{total} tokens are scheduled, the budget is {budget}")
