"""A long prompt among decoding requests: what it does to their gaps, and what chunking costs its own TTFT.

Some requests decode; then one with a long prompt arrives. Under continuous batching its whole prompt runs in
one forward, and everybody waits for it once; under a budget it comes in chunks, and everybody waits a little,
many times. Works on any engine; the seconds are those of its clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

from tinycb.engine import Engine
from tinycb.load_report import Interference
from tinycb.request import Request, SamplingParams
from tinycb.tracing.records import StepRecord

__all__ = ["interfere"]

SETTLE, AFTER = 12, 12  # steps that everybody decodes before and after
SHORT_PROMPT = 32


def interfere(
    engine: Engine,
    name: str,
    *,
    prompt_tokens: int = 2048,
    decoding: int = 8,
    on_step: Callable[[StepRecord], None] = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Interference | None:
    """Run it, and close the engine. None if it was told to stop.

    Raises ValueError if the long prompt does not fit, and whatever the executor raises.
    """
    rng = random.Random(0)
    vocab = engine.executor.vocab_size or 1 << 16

    def request(request_id: str, length: int) -> Request:
        params = SamplingParams(max_tokens=1 << 20, ignore_eos=True)
        return Request(request_id, rng.choices(range(vocab), k=length), params)

    last: dict[str, float] = {}
    gaps: dict[str, list[tuple[float, float]]] = {f"d{i}": [] for i in range(decoding)}

    def step() -> StepRecord:
        record = engine.step()
        for request_id in record.sampled:
            if request_id in last and request_id in gaps:
                gaps[request_id].append((record.time_end, record.time_end - last[request_id]))
            last[request_id] = record.time_end
        on_step(record)
        return record

    try:
        for request_id in gaps:
            engine.add_request(request(request_id, SHORT_PROMPT))
        while len(step().sampled) < decoding:
            if should_stop():
                return None
        for _ in range(SETTLE):
            step()
        before = [gap for pairs in gaps.values() for _, gap in pairs[-SETTLE:]]
        long_request = request("long", prompt_tokens)
        engine.add_request(long_request)
        arrived, chunks = long_request.arrival_time or 0.0, 0
        while "long" not in last:
            if should_stop():
                return None
            chunks += step().scheduled.get("long", 0) > 0
        ttft = last["long"] - arrived
        for _ in range(AFTER):
            step()
    finally:
        for request_id in (*gaps, "long"):
            engine.abort(request_id)
        engine.close()
    after = max(gap for pairs in gaps.values() for moment, gap in pairs if moment > arrived)
    around = {r: [(m - arrived, gap) for m, gap in pairs] for r, pairs in gaps.items()}
    return Interference(name, around, ttft, chunks, median(before), after)
