"""A long prompt among decoding requests, in simulated time: who waits how long."""

from __future__ import annotations

import pytest

from tinycb import Engine, EngineConfig
from tinycb.costs.devices import DEVICES
from tinycb.costs.roofline import CostModel
from tinycb.costs.shapes import load_shape
from tinycb.executors import CostModelExecutor, SimulatedClock
from tinycb.interference import interfere
from tinycb.load_report import Interference

COST = CostModel(load_shape("llama-3-8b"), DEVICES["h100"])


def run(name: str, prompt: int = 4096, **config) -> Interference:
    clock = SimulatedClock()
    engine = Engine(EngineConfig(num_blocks=1024, **config), CostModelExecutor(COST, clock), clock=clock)
    result = interfere(engine, name, prompt_tokens=prompt)
    assert result is not None
    assert engine.pool.num_free == engine.pool.num_blocks
    return result


def test_whole_it_stalls_everybody_once_and_in_chunks_a_little_many_times() -> None:
    whole = run("continuous", batching="continuous")
    assert whole.chunks == 1
    assert whole.worst == pytest.approx(
        COST.floor(COST.work([(1, 45)] * 8 + [(4096, 4096)])).seconds, rel=0.01
    )
    previous = whole
    for budget in (1024, 512, 256, 64):
        chunked = run("chunked", max_num_batched_tokens=budget)
        assert chunked.chunks == -(-4096 // (budget - 8))
        assert chunked.worst <= previous.worst
        assert chunked.ttft >= previous.ttft
        previous = chunked
    assert previous.worst < whole.worst / 10


def test_every_request_has_its_gaps_and_time_counts_from_the_arrival() -> None:
    result = run("chunked", prompt=600)
    assert len(result.gaps) == 8
    for gaps in result.gaps.values():
        moments = [moment for moment, _ in gaps]
        assert moments == sorted(moments)
        assert moments[0] < 0 < moments[-1]
        assert result.worst >= max(gap for moment, gap in gaps if moment > 0)


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="the prompt has 20000 tokens"):
        run("chunked", prompt=20_000)


def test_it_stops_when_told_to() -> None:
    clock = SimulatedClock()
    engine = Engine(EngineConfig(num_blocks=1024), CostModelExecutor(COST, clock), clock=clock)
    assert interfere(engine, "x", should_stop=lambda: True) is None
