"""What recording costs vLLM's scheduler, without a model: run this with an interpreter that has vLLM.

    PYTHONPATH=. TINYCB_TRACE=/tmp/t.jsonl $VLLM_PYTHON -m benchmarks.vllm_recorder MODEL_FOLDER [RUNNING …]

vLLM's scheduler and its recording subclass take turns, a step each, on the same scripted requests; between
steps the thread sleeps as long as a forward might take, which is when the recorder writes. Both are timed
from outside, `schedule` and `update_from_output` together, in steps in which all requests decode: by the
clock, and in processor time of their thread, which neighbours do not disturb.

`serve` also drives the asynchronous class, a step ahead of its tokens, for the tests.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["make_request", "make_scheduler", "serve"]

Tokens = Callable[[str, int], int]


def make_scheduler(kind: str, model: str, *, num_blocks: int, **settings: Any) -> Any:
    """kind: "plain", "recording" or "async", on `num_blocks` blocks beside vLLM's placeholder."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from tinycb.adapters.vllm import RecordingAsyncScheduler, RecordingScheduler

    config = EngineArgs(model=model, dtype="float32", enforce_eager=True, **settings).create_engine_config()
    config.cache_config.num_gpu_blocks = num_blocks + 1
    config.scheduler_config.async_scheduling = kind == "async"  # the CPU platform turns it off
    init_none_hash(get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo))
    size = config.cache_config.block_size
    spec = FullAttentionSpec(block_size=size, num_kv_heads=3, head_size=64, dtype=torch.float32)
    blocks = KVCacheConfig(num_blocks + 1, [], [KVCacheGroupSpec(["layer"], spec)])
    kinds = {"plain": Scheduler, "recording": RecordingScheduler, "async": RecordingAsyncScheduler}
    return kinds[kind](config, blocks, StructuredOutputManager(config), block_size=size, hash_block_size=size)


def make_request(scheduler: Any, name: str, prompt: Sequence[int], max_tokens: int, **params: Any) -> Any:
    """A request as vLLM's engine would queue it."""
    from vllm import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    hash_fn = get_hash_fn_by_name(scheduler.cache_config.prefix_caching_hash_algo)
    hasher = get_request_block_hasher(scheduler.block_size, hash_fn)
    wanted = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0, **params)
    return Request(name, list(prompt), wanted, None, block_hasher=hasher)


def sample(scheduler: Any, output: Any, tokens: Tokens, known: Mapping[str, Any]) -> Any:
    """What a model would return: a token for each request that reaches its last one."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    sampled = []
    for name in names:
        end = computed[name] + output.num_scheduled_tokens[name]
        request = known[name]
        whole = end >= request.num_prompt_tokens and end >= request.num_tokens
        sampled.append([tokens(name, end)] if whole else [])
    return ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)


def serve(
    scheduler: Any,
    arrivals: Mapping[int, Sequence[Any]],
    tokens: Tokens,
    *,
    ahead: int = 0,
    aborts: Mapping[int, Sequence[str]] | None = None,
) -> int:
    """Run to the end; returns the steps. arrivals, aborts: by step. ahead: 1 chooses a step early."""
    from vllm.v1.request import RequestStatus

    known: dict[str, Any] = {}
    in_flight: deque[tuple[Any, Any]] = deque()
    step, last = 0, max(arrivals)
    while step <= last or scheduler.has_requests() or in_flight:
        for request in arrivals.get(step, ()):
            known[request.request_id] = request
            scheduler.add_request(request)
        if aborts and step in aborts:
            scheduler.finish_requests(aborts[step], RequestStatus.FINISHED_ABORTED)
        output = scheduler.schedule()
        in_flight.append((output, sample(scheduler, output, tokens, known)))
        while len(in_flight) > ahead or (in_flight and not output.num_scheduled_tokens):
            scheduler.update_from_output(*in_flight.popleft())
        step += 1
    return step


class Timer:
    """Seconds between `start` and `stop`, by the clock and of this thread's processor time, added up."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def start(self) -> None:
        self.wall -= time.perf_counter()
        self.cpu -= time.thread_time()

    def stop(self) -> None:
        self.cpu += time.thread_time()
        self.wall += time.perf_counter()


def measure(model: str, running: int, steps: int = 500, forward: float = 0.008) -> dict[str, float]:
    """Median seconds a step of each; the recorder's own part, as its trace tells it; the writing thread's."""
    settings = {"max_num_seqs": running, "max_num_batched_tokens": 4096, "max_model_len": 1024}
    schedulers = {
        kind: make_scheduler(kind, model, num_blocks=running * 32, block_size=32, **settings)
        for kind in ("plain", "recording")
    }
    known: dict[str, dict[str, Any]] = {}
    for kind, scheduler in schedulers.items():
        known[kind] = {
            f"r{i}": make_request(scheduler, f"r{i}", [i + 1] * 40, steps + 8) for i in range(running)
        }
        for request in known[kind].values():
            scheduler.add_request(request)
    timers: dict[str, list[Timer]] = {kind: [] for kind in schedulers}
    others = time.process_time() - time.thread_time()
    for step in range(steps):
        turns = list(schedulers.items())
        for kind, scheduler in turns if step % 2 else reversed(turns):  # whoever is second has warmer caches
            timer = Timer()
            timer.start()
            output = scheduler.schedule()
            timer.stop()
            result = sample(scheduler, output, lambda name, end: 7 + end % 1000, known[kind])
            time.sleep(forward)
            timer.start()
            scheduler.update_from_output(output, result)
            timer.stop()
            if step > 20:
                timers[kind].append(timer)
    schedulers["recording"].shutdown()
    others = time.process_time() - time.thread_time() - others
    with open(os.environ["TINYCB_TRACE"], encoding="utf-8") as trace:
        steps_told = [json.loads(line) for line in list(trace)[22:]]
    told = [line["vllm"] for line in steps_told if "step" in line]  # not the keyframes
    own = statistics.median(line["recorder"] for line in told)
    wall = {kind: statistics.median(timer.wall for timer in kept) for kind, kept in timers.items()}
    cpu = {kind: statistics.median(timer.cpu for timer in kept) for kind, kept in timers.items()}
    return {
        "plain": wall["plain"],
        "more": wall["recording"] / wall["plain"] - 1,
        "plain_cpu": cpu["plain"],
        "more_cpu": cpu["recording"] / cpu["plain"] - 1,
        "own": own / wall["plain"],
        "writing": others / steps,
    }


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    model, *sizes = sys.argv[1:]
    for running in map(int, sizes or ("16", "64")):
        found = measure(model, running)
        print(
            f"{running:>4} running: vLLM {found['plain'] * 1e6:.0f} µs a step, recorded "
            f"{found['more']:+.1%}; "
            f"processor time {found['plain_cpu'] * 1e6:.0f} µs, {found['more_cpu']:+.1%}; "
            f"in the recorder {found['own']:.1%}; its thread writes {found['writing'] * 1e6:.0f} µs a step",
            flush=True,
        )


if __name__ == "__main__":
    main()
