"""One request's sampling parameters, from vLLM's object to the names that a trace has. Imports no vLLM."""

from __future__ import annotations

from typing import Any

__all__ = ["sampling_params_of"]


def sampling_params_of(params: Any, max_tokens: int) -> dict[str, Any]:
    """As `tinycb.SamplingParams(**…)` takes them.

    Stop strings are left out: vLLM looks for them in front of its engine, which sees only an abort.
    """
    logprobs = params.logprobs
    return {
        "temperature": float(params.temperature),
        "top_k": max(0, int(params.top_k)),
        "top_p": float(params.top_p),
        "seed": params.seed,
        "max_tokens": max_tokens,
        "min_tokens": int(params.min_tokens),
        "stop": (),
        "stop_token_ids": tuple(params.stop_token_ids or ()),
        "ignore_eos": bool(params.ignore_eos),
        "logprobs": logprobs if logprobs is None or logprobs >= 0 else None,
    }
