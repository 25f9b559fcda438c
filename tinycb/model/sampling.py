"""From logits to tokens: greedy, temperature, top-k, top-p, and log-probabilities.

The draw is counter-based: the uniform number for output token i of a request is a hash of (seed, i). No
generator has a state, so preemption, a replay or a failed step cannot shift it, and no neighbour can.

A batch in which every request is plainly greedy costs one argmax. Any other row is handled alone, in numpy
and fp64 on the CPU, so its token depends on its own logits only. Equally likely tokens rank by id, lowest
first. Does not decide when a request ends (`engine.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tinycb.request import Request, SamplingParams

__all__ = ["Sampled", "draw", "log_softmax", "most_likely", "sample", "uniform"]

FloatRow = npt.NDArray[np.floating]  # (V,)


@dataclass(slots=True)
class Sampled:
    """By request id: its token or its error, and, for those that ask, `{token_id: logprob}`."""

    token_ids: dict[str, int] = field(default_factory=dict)
    logprobs: dict[str, dict[int, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def sample(logits: Tensor, requests: Sequence[Request], eos_token_ids: Collection[int]) -> Sampled:
    """One token for each row of logits (rows, V); row i belongs to `requests[i]`.

    A row that holds NaN or +inf, or in which every token is forbidden, puts its request into `errors`.
    """
    output = Sampled()
    if not requests:
        return output
    best, scores = _largest(logits)
    for i, (request, token, score) in enumerate(zip(requests, best, scores, strict=True)):
        name, params = request.request_id, request.sampling_params
        if not np.isfinite(score):
            output.errors[name] = f"the model's logits are not finite: the largest is {score}"
            continue
        forbidden = _forbidden(request, eos_token_ids)
        if params.temperature > 0 or forbidden or params.logprobs is not None:
            row = logits[i].cpu().numpy()  # (V,)
            allowed = _without(row, forbidden)  # (V,)
            if allowed.max() == -np.inf:
                output.errors[name] = "min_tokens forbids every token: all of them end the request"
                continue
            if params.temperature > 0:
                token = draw(allowed, params, uniform(request.seed or 0, request.num_output_tokens))
            else:
                token = int(allowed.argmax())
            if params.logprobs is not None:
                logprobs = log_softmax(row)  # (V,)
                ids = [token, *most_likely(logprobs, params.logprobs)]
                output.logprobs[name] = {t: float(logprobs[t]) for t in ids}
        output.token_ids[name] = token
    return output


def _largest(logits: Tensor) -> tuple[list[int], list[float]]:
    """Each row's largest logit and its id: of equals the first, and NaN before any number."""
    if logits.device.type == "cpu":  # numpy's is some thirty times as fast as torch's there
        rows = logits.numpy()  # (rows, V)
        best = rows.argmax(axis=1)  # (rows,)
        return best.tolist(), rows[np.arange(len(rows)), best].tolist()
    ids = logits.argmax(dim=-1, keepdim=True)  # (rows, 1)
    return ids.squeeze(1).tolist(), logits.gather(1, ids).squeeze(1).tolist()


def _forbidden(request: Request, eos_token_ids: Collection[int]) -> list[int]:
    """Tokens that may not come yet: those that would end the request before `min_tokens`."""
    params = request.sampling_params
    if request.num_output_tokens >= params.min_tokens:
        return []
    eos = () if params.ignore_eos else eos_token_ids
    return [*eos, *params.stop_token_ids]


def _without(row: FloatRow, forbidden: Sequence[int]) -> FloatRow:
    if not forbidden:
        return row
    allowed = row.copy()
    allowed[list(forbidden)] = -np.inf
    return allowed


def draw(logits: FloatRow, params: SamplingParams, u: float) -> int:
    """The token at quantile `u` in [0, 1) of what temperature, then top-k, then top-p leave of (V,) logits.

    Tokens stand in the order of their ids, so the same u gives the same token wherever it is computed.
    """
    best, size = logits.max(), len(logits)

    def weigh(some: FloatRow) -> npt.NDArray[np.float64]:
        with np.errstate(over="ignore"):  # a tiny temperature leaves -inf, whose weight is 0
            return np.exp((some.astype(np.float64) - best) / params.temperature)

    ranked, keep = logits, min(params.top_k or size, size)
    if keep < size:
        ranked = np.partition(logits, size - keep)[size - keep :]  # (keep,)
    if params.top_p < 1:
        weights = weigh(ranked)
        total = weights.sum()
        # All that weigh less than this mean of the surplus weigh less than it together: no need to sort them.
        ranked = np.sort(ranked[weights >= (1 - params.top_p) * total / size])[::-1]
        reached = np.searchsorted(np.cumsum(weigh(ranked)), params.top_p * total)
        keep = min(int(reached) + 1, len(ranked))
    ids = _largest_ids(logits, keep, ranked[:keep].min())  # (keep,)
    weights = weigh(logits[ids])  # (keep,)
    mass = np.cumsum(weights)  # (keep,)
    place = int(np.searchsorted(mass, u * mass[-1], side="right"))
    return int(ids[min(place, np.flatnonzero(weights)[-1])])  # u * mass[-1] may round up to mass[-1]


def _largest_ids(scores: FloatRow, count: int, smallest: np.floating) -> npt.NDArray[np.intp]:
    """The ids, in order, of the `count` largest scores, the last of which is `smallest`: (count,)."""
    ids = np.flatnonzero(scores >= smallest)
    surplus = len(ids) - count
    if surplus <= 0:
        return ids
    equal = np.flatnonzero(scores[ids] == smallest)  # the highest ids of these go
    return np.delete(ids, equal[-surplus:])


def log_softmax(row: FloatRow) -> npt.NDArray[np.float64]:
    """(V,) logits → (V,) log-probabilities, in fp64."""
    shifted = row.astype(np.float64) - float(row.max())  # (V,)
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def most_likely(scores: FloatRow, count: int) -> list[int]:
    """The ids of the `count` largest scores, largest first; equals by id."""
    count = min(count, len(scores))
    if not count:
        return []
    smallest = np.partition(scores, len(scores) - count)[len(scores) - count]
    ids = _largest_ids(scores, count, smallest)
    return [int(i) for i in ids[np.argsort(-scores[ids], kind="stable")]]


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) with 53 random bits that depends on the two integers and on nothing else."""
    return (_scramble(_scramble(seed) + index) >> 11) / 2**53


def _scramble(x: int) -> int:
    """Steele, Lea and Flood's SplitMix64: one step of its counter and its finalizer, on 64 bits."""
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)
