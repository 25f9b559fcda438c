"""What an engine keeps of a request until its answer is given back, and the answer itself.

Does not decide when a request ends (`ending.py`) or when its answer goes back (`scheduling/`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tinycb.output_text import OutputText, TextTokenizer
from tinycb.request import FinishReason, Request, RequestMetrics, RequestOutput, RequestStatus

__all__ = ["Live"]


@dataclass(slots=True)
class Live:
    """A request under way. end_ids: tokens that end it. prompt: its text, if it came as text."""

    request: Request
    text: OutputText
    end_ids: frozenset[int]
    prompt: str | None = None
    logprobs: list[dict[int, float]] = field(default_factory=list)
    finish_step: int = 0
    is_wanted: bool = True  # somebody will take the answer out

    @classmethod
    def begin(
        cls,
        request: Request,
        prompt: str | None,
        tokenizer: TextTokenizer | None,
        eos_token_ids: Collection[int],
    ) -> Live:
        params = request.sampling_params
        end_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            end_ids |= frozenset(eos_token_ids)
        return cls(request, OutputText(tokenizer, params.stop), end_ids, prompt)

    def end(self, finish_reason: FinishReason) -> None:
        self.text.close()
        self.request.finish_reason = finish_reason
        self.request.status = RequestStatus.FINISHED

    def answer(self, metrics: RequestMetrics) -> RequestOutput:
        """What the caller gets. Only of a request that has ended."""
        request = self.request
        assert request.finish_reason is not None
        return RequestOutput(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            token_ids=request.output_token_ids,
            text=self.text.text,
            finish_reason=request.finish_reason,
            logprobs=self.logprobs if request.sampling_params.logprobs is not None else None,
            metrics=metrics,
            error=request.error,
            prompt=self.prompt,
        )
