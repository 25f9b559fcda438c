"""Examples for schedulers and engines: who arrives when, with what, under which configuration. Plain numbers.

Strategies favour the places where faults live: lengths at k·BS ± 1, one-token requests beside long ones,
prompts that share all but their last token, a budget that ends inside a block, a pool that just fits the
longest request, or that with one block to spare, aborts at every moment, and a forward that fails.

Nothing is run here. Next: `serving_run.py`, which runs an example; `serving.py` says what must hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tinycb.config import EngineConfig
from tinycb.request import Request, SamplingParams

__all__ = ["Arrival", "Serving", "Workload", "engine_configs", "lengths", "servings", "workloads"]

VOCABULARY = 256  # of `tiny-random`
# Of a prompt, how much is shared; and after how many steps the request is aborted. Most are not.
_SHARES = ("nothing", "all", "full_blocks", "but_one")
_SHARES_AND_FATES = [
    *((share, None) for _ in range(20) for share in _SHARES),
    *((share, fate) for share in _SHARES[:2] for fate in (0, 1, 2, 3, 5, 8)),
]


@dataclass(frozen=True, slots=True, repr=False)
class Arrival:
    """One request. step: the step before which it arrives. prompt, max_tokens: lengths, in tokens.

    shared: how many tokens its prompt has in common with everybody else's that shares. abort: given up so
    many steps after its arrival, or None.
    """

    step: int
    prompt: int
    max_tokens: int
    shared: int = 0
    abort: int | None = None

    def __repr__(self) -> str:
        return _brief(self)

    @property
    def work(self) -> int:
        """The most steps it can take when nothing is in its way: every step computes at least one token."""
        return self.prompt + self.max_tokens - 1


@dataclass(frozen=True, slots=True, repr=False)
class Workload:
    """Requests in order of arrival. failures: steps whose forward fails. collide: equal prefix hashes."""

    arrivals: tuple[Arrival, ...]
    failures: tuple[int, ...] = ()
    collide: bool = False

    def __repr__(self) -> str:
        return _brief(self)

    def request(self, index: int, name: str | None = None) -> Request:
        """The request of arrival `index`, by the name q<index> unless another is given."""
        arrival = self.arrivals[index]
        shared = [1 + (7 * i + 3) % (VOCABULARY - 1) for i in range(min(arrival.shared, arrival.prompt))]
        own = [
            1 + (37 * index + 5 * i * i + i) % (VOCABULARY - 1) for i in range(arrival.prompt - len(shared))
        ]
        params = SamplingParams(max_tokens=arrival.max_tokens, ignore_eos=True)
        return Request(name or f"q{index}", shared + own, params)


@dataclass(frozen=True, slots=True, repr=False)
class Serving:
    """A configuration and a workload: all there is to a run. A subject may replace `config.batching`."""

    config: EngineConfig
    workload: Workload

    def __repr__(self) -> str:
        return f"Serving({_brief(self.config)}, {self.workload!r})"

    def to_dict(self) -> dict[str, Any]:
        """The example as JSON can hold it."""
        return {"config": self.config.to_dict(), "workload": asdict(self.workload)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Serving:
        """What `to_dict` made."""
        work = values["workload"]
        arrivals = tuple(Arrival(**arrival) for arrival in work["arrivals"])
        return cls(
            EngineConfig(**values["config"]), Workload(arrivals, tuple(work["failures"]), work["collide"])
        )


def _brief(value: Any) -> str:
    """A dataclass as the call that makes it, without the fields that have their default."""
    shown = [(f.name, getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != f.default]
    return f"{type(value).__name__}({', '.join(f'{name}={field!r}' for name, field in shown)})"


def lengths(block_size: int, longest: int) -> SearchStrategy[int]:
    """1 … longest, and two times in three k·BS - 1, k·BS or k·BS + 1."""
    return st.sampled_from(sorted(_weighted(block_size, longest)))


def _weighted(block_size: int, longest: int) -> list[int]:
    """The numbers 1 … longest, with those at block boundaries repeated until they are two thirds."""
    edges = {k * block_size + d for k in range(longest // block_size + 1) for d in (-1, 0, 1)} | {1}
    edges = {n for n in edges if 1 <= n <= longest}
    return [*range(1, longest + 1), *sorted(edges) * max(1, 2 * longest // len(edges))]


@st.composite
def workloads(
    draw: DrawFn,
    block_size: int = 4,
    max_requests: int = 6,
    longest_prompt: int = 24,
    longest_output: int = 9,
    failing: bool = True,
    crowded: bool = False,
) -> Workload:
    """Arrivals in order. One in three prompts is long, one a single token.

    failing: some forwards fail. crowded: several requests that come at once and stay for long.
    """
    short, long = _weighted(block_size, 2 * block_size + 1), _weighted(block_size, longest_prompt)
    prompts = sorted([*short * max(1, len(long) // len(short)), *[1] * len(long), *long])
    outputs, gaps, fewest = _weighted(block_size, longest_output), [0, 0, 0, 0, 1, 2, 5], 1
    if crowded:
        shortest = draw(st.sampled_from([1, *[longest_output // 2] * 5]))
        outputs, gaps = list(range(shortest, longest_output + 1)), [0, 0, 0, 1]
        fewest = draw(st.sampled_from([1, *[max_requests // 2 + 1] * 5]))
    # Few choices for each request, so that the search can leave one out at a stroke.
    parts = st.tuples(
        st.sampled_from(gaps),
        st.sampled_from(prompts),
        st.sampled_from(sorted(outputs)),
        st.sampled_from(_SHARES_AND_FATES),
    )
    arrivals, step = [], 0
    for gap, prompt, output, (share, abort) in draw(st.lists(parts, min_size=fewest, max_size=max_requests)):
        step += gap
        full_blocks = prompt // block_size * block_size
        shared = {"nothing": 0, "all": prompt, "but_one": prompt - 1, "full_blocks": full_blocks}[share]
        arrivals.append(Arrival(step, prompt, output, shared, abort))
    failures = draw(st.sets(st.integers(0, 9), max_size=3)) if failing and draw(st.booleans()) else set()
    collide = draw(st.sampled_from([False, False, True]))
    return Workload(tuple(arrivals), tuple(sorted(failures)), collide)


@st.composite
def engine_configs(
    draw: DrawFn,
    workload: Workload | None = None,
    block_sizes: tuple[int, ...] = (1, 2, 3, 4, 8),
    batching: tuple[str, ...] = ("chunked", "continuous", "static"),
    attention: tuple[str, ...] = ("paged",),
    backends: tuple[str, ...] = ("auto",),
    crowded: bool = False,
) -> EngineConfig:
    """Configurations whose pool is tight for `workload`: the longest request fits, just, or not quite.

    crowded: the pool holds the prompts of all, and not their outputs; few other limits.
    """
    size = draw(st.sampled_from(block_sizes))
    arrivals = workload.arrivals if workload is not None else (Arrival(0, 9, 9),)
    needs = [-(-arrival.work // size) for arrival in arrivals]
    prompts = [-(-arrival.prompt // size) for arrival in arrivals]
    longest, prompt, all_prompts = max(needs), max(prompts), max(*needs, sum(prompts))
    # Lists of one length and order, so that an example stays what it is while requests are left out of it.
    tight = [all_prompts, all_prompts + 1, all_prompts, (all_prompts + sum(needs)) // 2, all_prompts + 1]
    pools = tight if crowded else [sum(needs), *tight, longest, longest + 1, prompt, max(1, prompt - 1)]
    budgets = [256, 64, 4 * size + 1, 2 * size, 2 * size - 1, size + 1, 9, 3, 2, 1][: 5 if crowded else None]
    limits = [None, 400, 400, 400] if crowded else [None, 400, 400, prompt * size, prompt * size + 1]
    return EngineConfig(
        batching=draw(st.sampled_from(batching)),
        attention=draw(st.sampled_from(attention)),
        backend=draw(st.sampled_from(backends)),
        block_size=size,
        num_blocks=draw(st.sampled_from(pools)),
        max_num_batched_tokens=draw(st.sampled_from(budgets)),
        max_num_seqs=draw(st.sampled_from([16, 16, 16, 16, 4, 3] if crowded else [16, 4, 3, 2, 1])),
        max_model_len=draw(st.sampled_from(limits)),
        prefix_caching=draw(st.sampled_from([True, True, False])),
        reserve_full_prompt=draw(st.sampled_from([True, False])),
    )


@st.composite
def servings(
    draw: DrawFn,
    max_requests: int = 6,
    longest_prompt: int = 24,
    longest_output: int = 9,
    failing: bool = True,
    **config: tuple[Any, ...],
) -> Serving:
    """Workloads with lengths at the block boundaries of their configuration. Two of three are crowded."""
    sizes = config.pop("block_sizes", (1, 2, 3, 4, 8))
    size = draw(st.sampled_from(sizes))
    crowded = draw(st.sampled_from([False, True, True, False, True, True]))
    workload = draw(workloads(size, max_requests, longest_prompt, longest_output, failing, crowded))
    return Serving(draw(engine_configs(workload, (size,), crowded=crowded, **config)), workload)
