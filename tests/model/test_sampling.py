"""Sampling: what each parameter keeps; a request depends on its own seed only, and its trouble is its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycb.model.sampling import Sampled, draw, log_softmax, most_likely, sample, uniform
from tinycb.request import Request, SamplingParams

EOS = (3,)


def request(params: SamplingParams, outputs: int = 0, name: str = "r", seed: int | None = None) -> Request:
    made = Request(name, [1], params)
    made.token_ids.extend([5] * outputs)
    made.seed = params.seed if seed is None else seed
    return made


def one(logits: list[float], params: SamplingParams, outputs: int = 0) -> Sampled:
    return sample(torch.tensor([logits]), [request(params, outputs)], EOS)


def test_greedy_takes_the_largest_and_of_equals_the_first() -> None:
    assert one([0.0, 2.0, 1.0, 2.0], SamplingParams()).token_ids == {"r": 1}
    assert one([0.0, 2.0, 1.0, 2.0], SamplingParams(logprobs=2)).token_ids == {"r": 1}


def frequencies(params: SamplingParams, logits: list[float], count: int = 20000) -> np.ndarray:
    row = np.array(logits, dtype=np.float32)
    tokens = [draw(row, params, uniform(seed, 0)) for seed in range(count)]
    return np.bincount(tokens, minlength=len(logits)) / count


def softmax(logits: list[float], temperature: float) -> np.ndarray:
    weights = np.exp(np.array(logits) / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_temperature_gives_the_softmax(temperature: float) -> None:
    logits = [1.0, 0.0, -1.0, 2.0, 0.5]
    seen = frequencies(SamplingParams(temperature=temperature), logits)
    assert np.abs(seen - softmax(logits, temperature)).max() < 0.015


def test_top_k_keeps_k_and_of_equals_the_lowest_ids() -> None:
    seen = frequencies(SamplingParams(temperature=1.0, top_k=2), [1.0, 0.0, 2.0, -1.0], 4000)
    assert set(np.flatnonzero(seen)) == {0, 2}
    assert abs(seen[2] - 1 / (1 + np.exp(-1.0))) < 0.03
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, top_k=2), [1.0] * 5, 500))) == {
        0,
        1,
    }
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, top_k=99), [1.0] * 5, 500))) == set(
        range(5)
    )


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = [float(x) for x in np.log([0.4, 0.1, 0.3, 0.2])]
    for top_p, kept in [(0.39, {0}), (0.41, {0, 2}), (0.69, {0, 2}), (0.75, {0, 2, 3}), (0.95, {0, 1, 2, 3})]:
        seen = frequencies(SamplingParams(temperature=1.0, top_p=top_p), logits, 3000)
        assert set(np.flatnonzero(seen)) == kept, top_p
    tiny = frequencies(SamplingParams(temperature=1.0, top_p=1e-9), logits, 300)
    assert set(np.flatnonzero(tiny)) == {0}


def test_top_p_counts_within_what_top_k_left() -> None:
    logits = [float(x) for x in np.log([0.4, 0.1, 0.3, 0.2])]
    seen = frequencies(SamplingParams(temperature=1.0, top_k=2, top_p=0.5), logits, 2000)
    assert set(np.flatnonzero(seen)) == {0}  # 0.4 / 0.7 is over a half


@settings(max_examples=400, deadline=None)
@given(
    logits=st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40),
    temperature=st.sampled_from([1e-307, 1e-30, 1e-3, 0.7, 1.0, 50.0, 1e6]),
    top_k=st.integers(0, 45),
    top_p=st.sampled_from([1e-12, 0.1, 0.5, 0.9, 1.0]),
    u=st.sampled_from([0.0, 1e-17, 0.3, 0.5, 1 - 2**-53]),
)
def test_a_drawn_token_is_always_one_that_may_be_drawn(
    logits: list[float], temperature: float, top_k: int, top_p: float, u: float
) -> None:
    row = np.array(logits, dtype=np.float32)
    token = draw(row, SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p), u)
    better = np.count_nonzero(row > row[token])
    assert 0 <= token < len(row)
    assert better < (top_k or len(row))
    with np.errstate(over="ignore"):
        weights = np.exp((row.astype(np.float64) - row.max()) / temperature)
    assert weights[token] > 0
    # The mass of strictly better tokens has not reached top_p yet.
    assert weights[row > row[token]].sum() <= top_p * weights.sum() * (1 + 1e-9)


def test_the_draw_is_uniform_and_independent_of_neighbouring_counters() -> None:
    draws = np.array([[uniform(seed, i) for i in range(64)] for seed in range(256)])
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=64, range=(0, 1))[0]
    expected = draws.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees of freedom
    for a, b in [(draws[:, :-1], draws[:, 1:]), (draws[:-1], draws[1:])]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.03


def test_a_token_depends_on_its_own_seed_and_index_only() -> None:
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(6, 50)).astype(np.float32))
    params = SamplingParams(temperature=1.0)
    rows = [request(params, outputs=i, name=f"r{i}", seed=100 + i) for i in range(6)]
    together = sample(logits, rows, EOS).token_ids
    for i, row in enumerate(rows):
        assert sample(logits[i : i + 1], [row], EOS).token_ids == {f"r{i}": together[f"r{i}"]}
    same_row = logits[:1].repeat(40, 1)
    by_index = sample(same_row, [request(params, i, f"i{i}", 7) for i in range(40)], EOS).token_ids
    by_seed = sample(same_row, [request(params, 0, f"s{i}", i) for i in range(40)], EOS).token_ids
    assert len(set(by_index.values())) > 5
    assert len(set(by_seed.values())) > 5


def test_min_tokens_forbids_what_would_end_the_request() -> None:
    logits = [0.0, 1.0, 2.0, 9.0, 8.0]  # 3 is the end of the sequence
    params = SamplingParams(min_tokens=2, stop_token_ids=[4])
    assert one(logits, params, outputs=1).token_ids == {"r": 2}
    assert one(logits, params, outputs=2).token_ids == {"r": 3}
    assert one(logits, SamplingParams(min_tokens=2, ignore_eos=True)).token_ids == {"r": 3}
    hot = SamplingParams(temperature=5.0, min_tokens=1, stop_token_ids=[4], seed=0)
    rows = [request(hot, 0, f"r{i}", i) for i in range(50)]
    tokens = sample(torch.tensor([logits] * 50), rows, EOS).token_ids.values()
    assert set(tokens) == {0, 1, 2}
    everything = SamplingParams(min_tokens=1, stop_token_ids=[0, 1, 2, 4])
    assert "min_tokens" in one(logits, everything).errors["r"]


def test_logprobs_are_of_the_unmodified_log_softmax() -> None:
    logits = [0.0, 1.0, 2.0, 9.0, 9.0]
    want = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), 0)
    params = SamplingParams(temperature=0.1, top_k=1, min_tokens=1, stop_token_ids=[4], logprobs=2, seed=1)
    output = one(logits, params)
    assert output.token_ids == {"r": 2}  # 3 and 4 would end it
    assert list(output.logprobs["r"]) == [2, 3, 4]
    for token, logprob in output.logprobs["r"].items():
        assert logprob == pytest.approx(float(want[token]))
    assert one(logits, SamplingParams(logprobs=0)).logprobs["r"] == {3: pytest.approx(float(want[3]))}
    assert len(one(logits, SamplingParams(logprobs=5)).logprobs["r"]) == 5


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=20), st.integers(0, 20))
def test_most_likely_ranks_by_score_then_id(scores: list[int], count: int) -> None:
    row = np.array(scores, dtype=np.float32)
    want = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    assert most_likely(row, count) == want
    assert np.exp(log_softmax(row)).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_is_an_error_of_its_request_alone(bad: float, temperature: float) -> None:
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    params = SamplingParams(temperature=temperature, logprobs=1, seed=5)
    rows = [request(params, name=n) for n in "abc"]
    good = sample(logits, rows, EOS)
    broken = logits.clone()
    broken[1] = bad
    output = sample(broken, rows, EOS)
    assert set(output.errors) == {"b"}
    assert "not finite" in output.errors["b"]
    assert output.token_ids == {n: good.token_ids[n] for n in "ac"}
    assert output.logprobs == {n: good.logprobs[n] for n in "ac"}


def test_half_precision_logits_and_an_empty_batch() -> None:
    assert sample(torch.zeros(0, 5), [], EOS).token_ids == {}
    row = torch.tensor([[0.0, 3.0, 1.0]])
    assert sample(row.half().float(), [request(SamplingParams(logprobs=1))], EOS).token_ids == {"r": 1}
