"""The record of a run: one `StepRecord` a step, and what is read out of them.

Reading order: `records.py`, `codec.py`, `run_state.py`, `writer.py`, `reader.py`, then `waste.py` and
`metrics.py`.
"""

from tinycb.tracing.codec import TraceError
from tinycb.tracing.header import config_from_header, make_header
from tinycb.tracing.metrics import MetricsCollector, Totals
from tinycb.tracing.pool_state import BlockState, PoolState, RequestState
from tinycb.tracing.reader import TraceReader
from tinycb.tracing.records import NewRequest, StepRecord
from tinycb.tracing.waste import Waste, step_waste
from tinycb.tracing.writer import TraceWriter

__all__ = [
    "BlockState",
    "MetricsCollector",
    "NewRequest",
    "PoolState",
    "RequestState",
    "StepRecord",
    "Totals",
    "TraceError",
    "TraceReader",
    "TraceWriter",
    "Waste",
    "config_from_header",
    "make_header",
    "step_waste",
]
