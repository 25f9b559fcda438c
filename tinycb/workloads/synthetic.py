"""Made traffic, seeded: the same seed gives the same requests everywhere.

    poisson    gaps between arrivals are exponential: requests that know nothing of each other
    bursty     gaps are gamma-distributed with the same mean and a larger spread: crowds, and silence

Lengths are log-normal, as those of people are: many short, a few very long. `shared_prefix` tokens may begin
a prompt, the same for one of `num_prefixes` groups: system prompts.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from tinycb.workloads.traffic import Arrival, Piece, Workload, WorkloadError

__all__ = ["SyntheticTraffic", "parse_synthetic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTraffic:
    """rate: requests a second. burstiness: the squared coefficient of variation of the gaps; 1 is Poisson.

    prompt, output: medians of the lengths in tokens; spread: the standard deviation of their logarithm.
    shared_prefix: tokens that begin every prompt of a group, beside its own; num_prefixes: groups.
    Raises WorkloadError, naming the field.
    """

    requests: int = 100
    rate: float = 4.0
    burstiness: float = 1.0
    prompt: int = 512
    output: int = 128
    spread: float = 0.8
    max_tokens: int = 8192
    shared_prefix: int = 0
    num_prefixes: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("requests", "prompt", "output", "max_tokens", "num_prefixes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise WorkloadError(f"{name} must be an integer of at least 1, not {value!r}")
        for name in ("rate", "burstiness"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise WorkloadError(f"{name} must be a positive number, not {value!r}")
        for name in ("shared_prefix", "seed", "spread"):
            value = getattr(self, name)
            if not 0 <= value < math.inf or (name != "spread" and not isinstance(value, int)):
                raise WorkloadError(f"{name} must be at least 0, not {value!r}")

    def make(self) -> Workload:
        """Draw the requests."""
        rng = random.Random(self.seed)
        time, arrivals = 0.0, []
        for index in range(self.requests):
            own = Piece(f"synthetic {self.seed} {index}", self._length(rng, self.prompt))
            prompt = [own]
            if self.shared_prefix:
                group = rng.randrange(self.num_prefixes)
                prompt = [Piece(f"system {self.seed} {group}", self.shared_prefix), own]
            output = self._length(rng, self.output)
            arrivals.append(Arrival(f"s{index}", time, prompt, output, f"synthetic request {index}"))
            time += rng.gammavariate(1 / self.burstiness, self.burstiness / self.rate)
        kind = "poisson" if self.burstiness == 1 else "bursty"
        return Workload(f"{kind}, {self.rate:g} requests/s", arrivals)

    def _length(self, rng: random.Random, median: int) -> int:
        return min(self.max_tokens, max(1, round(median * math.exp(rng.gauss(0, self.spread)))))


_BURSTY = 8.0
_FIELDS: dict[str, str] = dict(SyntheticTraffic.__annotations__)


def parse_synthetic(text: str) -> SyntheticTraffic | None:
    """`poisson` or `bursty`, with settings: `bursty:requests=200,rate=8,prompt=300`. None if it is neither.

    Raises WorkloadError for an unknown setting or a bad value.
    """
    kind, _, settings = text.partition(":")
    if kind not in ("poisson", "bursty"):
        return None
    values: dict[str, int | float] = {"burstiness": 1.0 if kind == "poisson" else _BURSTY}
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.partition("=")
        if name not in _FIELDS:
            raise WorkloadError(f"{kind} has no setting {name!r}; there are {', '.join(_FIELDS)}")
        try:
            values[name] = float(value) if _FIELDS[name] == "float" else int(value)
        except ValueError:
            raise WorkloadError(f"{kind}: {name} must be a number, not {value!r}") from None
    return SyntheticTraffic(**values)  # type: ignore[arg-type]
