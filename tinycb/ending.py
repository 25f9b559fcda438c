"""When a request ends, in the order in which the rules are asked.

An end-of-sequence or stop token, then a stop string, then a limit: `max_tokens`, `max_model_len`, and last
the block pool itself. The newest token needs no slot until it is fed back, so a request may hold one token
more than the pool has slots, as it may in vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tinycb.output_text import OutputText
from tinycb.request import FinishReason, Request
from tinycb.scheduling import Reason

__all__ = ["Ending", "ending_after"]


class Ending(NamedTuple):
    finish_reason: FinishReason
    reason: Reason
    numbers: Mapping[str, int | str]


def ending_after(
    request: Request, text: OutputText, end_ids: frozenset[int], max_model_len: int, capacity: int
) -> Ending | None:
    """Whether the token just appended ends the request. It is added to `text`, unless it is an end itself.

    end_ids: end-of-sequence ids, where they count, and the request's stop ids.
    capacity: of the pool, in tokens.
    """
    token, params, length = request.token_ids[-1], request.sampling_params, len(request.token_ids)
    outputs = length - request.num_prompt_tokens
    if token in end_ids and outputs >= params.min_tokens:
        reason = Reason.STOP_TOKEN if token in params.stop_token_ids else Reason.EOS_TOKEN
        return Ending(FinishReason.STOP, reason, {"token": token})
    string = text.push(token, may_stop=outputs > params.min_tokens)
    if string is not None:
        return Ending(FinishReason.STOP, Reason.STOP_STRING, {"string": string})
    if outputs >= params.max_tokens:
        return Ending(FinishReason.LENGTH, Reason.MAX_TOKENS, {"output": outputs, "limit": params.max_tokens})
    if length >= max_model_len:
        return Ending(FinishReason.LENGTH, Reason.MAX_MODEL_LEN, {"length": length, "limit": max_model_len})
    if length > capacity:
        return Ending(FinishReason.LENGTH, Reason.POOL_END, {"length": length, "limit": capacity})
    return None
