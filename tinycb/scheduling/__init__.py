"""Who runs in the next step, and with which blocks. Pure Python: no torch, no numpy.

Reading order: `block_pool.py`, `decisions.py`, `scheduler.py`, then the three policies, `static.py`,
`continuous.py` and `chunked.py`; `invariants.py` says what all of them keep.
"""

from tinycb.scheduling.block_pool import BlockPool
from tinycb.scheduling.chunked import ChunkedScheduler
from tinycb.scheduling.continuous import ContinuousScheduler
from tinycb.scheduling.decisions import Decision, Reason
from tinycb.scheduling.invariants import InvariantError, check_choice, check_pool
from tinycb.scheduling.scheduler import Scheduler, SchedulerOutput
from tinycb.scheduling.static import StaticScheduler

__all__ = [
    "POLICIES",
    "BlockPool",
    "ChunkedScheduler",
    "ContinuousScheduler",
    "Decision",
    "InvariantError",
    "Reason",
    "Scheduler",
    "SchedulerOutput",
    "StaticScheduler",
    "check_choice",
    "check_pool",
]

POLICIES: dict[str, type[Scheduler]] = {
    "static": StaticScheduler,
    "continuous": ContinuousScheduler,
    "chunked": ChunkedScheduler,
}
