"""vLLM's scheduler and its asynchronous one, recorded: give one of these names as `scheduler_cls`.

    TINYCB_TRACE=run.jsonl vllm serve MODEL --no-async-scheduling \\
        --scheduler-cls tinycb.adapters.vllm.RecordingScheduler
    LLM(MODEL, scheduler_cls="tinycb.adapters.vllm.RecordingScheduler", async_scheduling=False)
    … --async-scheduling --scheduler-cls tinycb.adapters.vllm.RecordingAsyncScheduler

Each decides exactly what its vLLM class decides. Nothing of vLLM is changed or replaced, and where nothing
can be recorded the engine runs on, and a line in its log says why.

Next: `recorder.py`.
"""

from __future__ import annotations

from tinycb.adapters.recorder import Recorder, check_hooks
from tinycb.adapters.vllm_settings import TESTED_VERSIONS

try:
    import vllm
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
except ImportError as error:
    raise ImportError(
        f"this Python has no vLLM whose v1 scheduler can be recorded ({error}); "
        f"tinycb.adapters.vllm is tested with vLLM {', '.join(TESTED_VERSIONS)}"
    ) from error

__all__ = ["RecordingAsyncScheduler", "RecordingScheduler"]

check_hooks(Scheduler, vllm.__version__)


class RecordingScheduler(Recorder, Scheduler):
    """vLLM's v1 scheduler, which writes what it does to the file that TINYCB_TRACE names."""


class RecordingAsyncScheduler(Recorder, AsyncScheduler):
    """The asynchronous one: it chooses a step before the tokens of the last one are known."""
