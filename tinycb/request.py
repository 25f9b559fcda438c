"""A request, what it asks for, and what comes back.

Plain data: no torch, no scheduling. A request has one list of tokens, prompt first and output after it, and
one number, `num_computed_tokens`, that chases its length. There is no prefill phase and no decode phase;
those are words for how far behind the number is.

Next: `config.py` for the knobs of the engine, `scheduling/` for who runs when.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Integral
from typing import Any

__all__ = ["FinishReason", "Request", "RequestMetrics", "RequestOutput", "RequestStatus", "SamplingParams"]


class RequestStatus(StrEnum):
    WAITING = "waiting"  # in the queue, never run
    RUNNING = "running"  # holds blocks
    PREEMPTED = "preempted"  # back in the queue; its blocks were taken
    FINISHED = "finished"


class FinishReason(StrEnum):
    STOP = "stop"  # an end-of-sequence token, a stop id or a stop string
    LENGTH = "length"  # max_tokens, max_model_len, or the end of the block pool
    ABORT = "abort"  # the caller gave up
    ERROR = "error"  # this request alone went wrong; `RequestOutput.error` says how


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_int(name: str, value: Any, minimum: int, meaning: str = "") -> None:
    if not _is_int(value) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}{meaning}, not {value!r}")


def _check_real(name: str, value: Any, low: float, high: float, interval: str) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low <= value <= high or (interval[0] == "(" and value == low):  # NaN is in none
        raise ValueError(f"{name} must be a number in {interval}, not {value!r:.80}")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen, and when a request ends.

    temperature: 0 is greedy; otherwise logits are divided by it.
    top_k: keep the k most likely tokens; 0 keeps all.
    top_p: keep the smallest set of tokens whose mass reaches top_p.
    seed: the output depends on the request's own seed and on no neighbour; None lets the engine draw one.
    max_tokens, min_tokens: of the output. Before min_tokens no ending token is sampled, no stop string seen.
    stop: strings that end the output, which is cut before them. stop_token_ids: ids that end it.
    ignore_eos: go on past the model's own end-of-sequence ids (stop ids still count).
    logprobs: None, or how many of the most likely tokens to report at each position, beside the chosen one.

    Raises ValueError, naming the field and what would be right.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int = 16
    min_tokens: int = 0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_real("temperature", self.temperature, 0.0, 1e6, "[0, 1e6]")
        _check_int("top_k", self.top_k, 0, " (0 keeps every token)")
        _check_real("top_p", self.top_p, 0.0, 1.0, "(0, 1]")
        if self.seed is not None and (not _is_int(self.seed) or not 0 <= self.seed < 2**64):
            raise ValueError(f"seed must be None or an integer in [0, 2**64), not {self.seed!r}")
        _check_int("max_tokens", self.max_tokens, 1)
        _check_int("min_tokens", self.min_tokens, 0)
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens must be at most max_tokens={self.max_tokens}, not {self.min_tokens}"
            )
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(stop, Sequence) or any(not isinstance(s, str) or not s for s in stop):
            raise ValueError(f"stop must be a string or a sequence of non-empty strings, not {self.stop!r}")
        ids = self.stop_token_ids
        if not isinstance(ids, Sequence | set | frozenset) or any(not _is_int(i) or i < 0 for i in ids):
            raise ValueError(f"stop_token_ids must be non-negative integers, not {ids!r}")
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos must be True or False, not {self.ignore_eos!r}")
        if self.logprobs is not None:
            _check_int("logprobs", self.logprobs, 0, " or None")
        object.__setattr__(self, "stop", tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(ids))


class Request:
    """One prompt on its way to an answer.

    prompt_token_ids: at least one non-negative integer. arrival_time: seconds on the engine's clock, which
    is `time.monotonic` unless another was given; None means the moment it is added. All is checked by
    `Engine.add_request`, so that a refusal is part of the record.

    The scheduler owns `status`, `num_computed_tokens` and `block_table`: block i of the table holds the keys
    and values of positions `i * block_size … (i + 1) * block_size - 1`.
    """

    __slots__ = (
        "arrival_time",
        "block_table",
        "error",
        "finish_reason",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "prefixes",
        "request_id",
        "sampling_params",
        "seed",
        "status",
        "token_ids",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        sampling_params: SamplingParams | None = None,
        arrival_time: float | None = None,
    ) -> None:
        try:
            self.token_ids: list[int] = list(prompt_token_ids)
        except TypeError:
            raise ValueError(
                f"prompt_token_ids must be a sequence of integers, not {prompt_token_ids!r:.80}"
            ) from None
        self.request_id = request_id
        self.sampling_params = SamplingParams() if sampling_params is None else sampling_params
        self.arrival_time = arrival_time
        self.num_prompt_tokens = len(self.token_ids)
        self.seed: int | None = None  # in force; the engine draws one where none was given
        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0  # of the latest admission: tokens found in the prefix cache
        self.num_preemptions = 0
        self.block_table: list[int] = []
        self.prefixes: list[Any] = []  # the identity of each full block so far; see scheduling/block_pool.py

    def check(self) -> None:
        """Raise ValueError if this is no request that any engine could serve, naming what is wrong."""
        if not isinstance(self.request_id, str) or not self.request_id:
            raise ValueError(f"request_id must be a non-empty string, not {self.request_id!r}")
        if not self.token_ids:
            raise ValueError("prompt_token_ids is empty: a prompt needs at least one token")
        for index, token in enumerate(self.token_ids):
            if type(token) is int and token >= 0:
                continue  # nearly always; the question below is a slow one
            if not isinstance(token, Integral) or isinstance(token, bool) or token < 0:
                raise ValueError(f"prompt_token_ids[{index}] must be a non-negative integer, not {token!r}")
        self.token_ids = [int(token) for token in self.token_ids]
        if not isinstance(self.sampling_params, SamplingParams):
            raise ValueError(f"sampling_params must be a SamplingParams, not {self.sampling_params!r:.80}")
        if self.arrival_time is not None:
            _check_real("arrival_time", self.arrival_time, 0.0, sys.float_info.max, "[0, inf) seconds")
        if self.status is not RequestStatus.WAITING or self.num_output_tokens:
            raise ValueError(f"request {self.request_id!r} has been run already: make a new Request")

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status}, "
            f"computed={self.num_computed_tokens}/{self.num_tokens}, "
            f"output={self.num_output_tokens}, blocks={self.block_table})"
        )


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The latencies of one finished request, in seconds and in steps.

    Defined as vLLM's serving benchmark defines them: `ttft` from arrival to the first token; `e2el` from
    arrival to the moment the answer was returned; `tpot = (e2el - ttft) / (output_len - 1)`, None for an
    output of one token; `itl`, the gaps between one token and the next. A count of steps includes the step
    in which the thing happened: a prompt that is admitted at once and runs whole has `ttft_steps == 1`.
    """

    ttft: float | None
    tpot: float | None
    e2el: float | None
    itl: tuple[float, ...]
    ttft_steps: int | None
    tpot_steps: float | None
    e2el_steps: int | None
    itl_steps: tuple[int, ...]
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_recomputed_tokens: int = 0


@dataclass(slots=True)
class RequestOutput:
    """What a request gave back. `text` is "" where the engine has no tokenizer.

    logprobs: for each output token, `{token_id: logprob}` of the chosen and of the most likely tokens.
    """

    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    finish_reason: FinishReason
    logprobs: list[dict[int, float]] | None = None
    metrics: RequestMetrics | None = None
    error: str | None = None
    prompt: str | None = field(default=None, repr=False)
