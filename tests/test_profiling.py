"""Where a step's time goes: the parts are the step, each gets its own, and nothing is left changed."""

import time

import pytest

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.model import llama, sampling
from tinycb.model.attention import AttentionMetadata
from tinycb.model.linear import Linear
from tinycb.profiling import ELSE, FUSED, PARTS, PRODUCTS, profile

PAUSE = 0.02  # seconds


def make_engine(**settings) -> Engine:
    engine = Engine.from_pretrained("tiny-random", EngineConfig(num_blocks=64, **settings))
    engine.generate([[1] * 9, [2]], SamplingParams(max_tokens=2, ignore_eos=True))  # compile, touch
    return engine


def requests(count: int = 4) -> list[Request]:
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    return [Request(f"r{i}", list(range(i, i + 8 + i)), params) for i in range(count)]


def places(engine: Engine) -> tuple[object, ...]:
    """What the profile replaces, as it stands now."""
    return (
        *(vars(Linear)["__call__"], llama.attention, vars(llama.Llama)["forward"]),
        *(vars(AttentionMetadata)["build"], sampling.sample, frozenset(vars(engine.scheduler))),
    )


@pytest.mark.parametrize("settings", [{}, {"attention": "mask", "batching": "static"}], ids=str)
def test_the_parts_are_the_step_and_each_took_some_of_it(settings):
    engine = make_engine(**settings)
    records = []
    found = profile(engine, requests(), records.append)
    assert set(found.parts) == {*PARTS, FUSED, ELSE}
    assert sum(found.parts.values()) == pytest.approx(found.seconds, rel=1e-9)
    assert all(seconds > 0 for part, seconds in found.parts.items() if part != FUSED)
    assert found.steps == len(records)
    assert found.output_tokens == 4 * 5
    assert found.tokens == sum(sum(r.scheduled.values()) + r.num_padded for r in records)


@pytest.mark.parametrize(
    ("owner", "name", "part"),
    [
        (sampling, "sample", "sampling"),
        (llama, "attention", "attention, with rope and cache write"),
        (llama.F, "embedding", "the forward beside them"),
    ],
)
def test_what_takes_longer_is_found_in_its_part(monkeypatch, owner, name, part):
    real = getattr(owner, name)

    def slow(*args, **more):
        time.sleep(PAUSE)
        return real(*args, **more)

    engine = make_engine()
    monkeypatch.setattr(owner, name, slow)
    found = profile(engine, requests(1))
    assert found.parts[part] >= PAUSE * found.steps
    assert found.parts[part] > found.seconds / 2


def test_products_that_take_longer_are_the_floor_and_not_what_is_fused_into_them(monkeypatch):
    real = Linear.__call__

    def slow(self, x, **more):
        time.sleep(PAUSE / 10)
        return real(self, x, **more)

    engine = make_engine()
    monkeypatch.setattr(Linear, "__call__", slow)
    found = profile(engine, requests(1))
    assert found.parts[PRODUCTS] == found.floor > found.seconds / 2
    assert abs(found.parts[FUSED]) < found.floor / 2


def test_a_profiled_run_gives_the_same_tokens_and_leaves_nothing_changed():
    engine = make_engine()
    before = places(engine)
    profile(engine, requests())
    assert places(engine) == before
    profiled = {name: output.token_ids for name, output in engine.outputs.items()}
    engine = make_engine()
    plain = engine.generate([r.token_ids for r in requests()], SamplingParams(max_tokens=5, ignore_eos=True))
    assert [profiled[f"r{i}"] for i in range(4)] == [output.token_ids for output in plain]


def test_a_run_that_fails_leaves_nothing_changed():
    engine = make_engine()
    before = places(engine)

    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(engine, requests(), stop)
    assert places(engine) == before
