"""Made traffic: seeded, with the rate, burstiness and lengths that were asked for."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from tinycb.workloads import SyntheticTraffic, WorkloadError, open_workload, parse_synthetic


def test_a_seed_says_everything() -> None:
    one, again, other = (SyntheticTraffic(seed=seed, requests=20).make() for seed in (1, 1, 2))
    assert one == again
    assert [a.time for a in one.arrivals] != [a.time for a in other.arrivals]
    assert one.arrivals[3].token_ids(1000) == again.arrivals[3].token_ids(1000)


@pytest.mark.parametrize(("kind", "variation"), [("poisson", 1), ("bursty", 8)])
def test_gaps_have_the_mean_and_the_spread_that_were_asked_for(kind: str, variation: float) -> None:
    workload = open_workload(f"{kind}:requests=20000,rate=5,prompt=1,output=1,spread=0")
    times = [a.time for a in workload.arrivals]
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.05)
    squared = statistics.variance(gaps) / statistics.mean(gaps) ** 2
    assert squared == pytest.approx(variation, rel=0.15)


def test_lengths_have_their_median_and_no_end_beyond_the_most() -> None:
    workload = open_workload("poisson:requests=4000,prompt=300,output=50,max_tokens=2000")
    assert statistics.median(a.prompt_tokens for a in workload.arrivals) == pytest.approx(300, rel=0.1)
    assert statistics.median(a.output_tokens for a in workload.arrivals) == pytest.approx(50, rel=0.1)
    assert max(a.prompt_tokens for a in workload.arrivals) <= 2000


def test_groups_share_their_system_prompt_and_nothing_else() -> None:
    workload = open_workload("poisson:requests=40,shared_prefix=32,num_prefixes=3,prompt=50,spread=0")
    heads = {tuple(a.token_ids(5000)[:32]) for a in workload.arrivals}
    tails = {tuple(a.token_ids(5000)[32:]) for a in workload.arrivals}
    assert (len(heads), len(tails)) == (3, 40)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("poisson:speed=3", "no setting 'speed'; there are requests, rate"),
        ("poisson:rate=0", "rate must be a positive number"),
        ("bursty:requests=-4", "requests must be an integer of at least 1, not -4"),
        ("poisson:rate=fast", "rate must be a number, not 'fast'"),
        ("poisson:requests=1.5", "requests must be a number"),
        ("poisson:spread=-1", "spread must be at least 0"),
    ],
)
def test_a_bad_setting_is_one_line(text: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        open_workload(text)


def test_a_file_name_is_no_recipe() -> None:
    assert parse_synthetic("poisson.csv") is None
