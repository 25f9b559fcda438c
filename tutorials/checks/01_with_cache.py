"""All prompts of up to four tokens of a vocabulary of four; the model's scores depend on all it saw."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb.learn import expect

HINTS = [
    "The first call gets the whole prompt. What does the second one still lack?",
    "Each turn: call `forward`, take the index of the largest score, put it behind the answer.",
    "Ask whether the answer is complete before you call `forward` again, not after.",
]
VOCABULARY, EOS = 4, 3


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `generate` is right."""
    for length in range(1, 5):
        for prompt in product(range(VOCABULARY), repeat=length):
            for max_tokens in (1, 2, 6):
                _one_case(exercise, list(prompt), max_tokens)


def _one_case(exercise: ModuleType, prompt: list[int], max_tokens: int) -> None:
    model, given = _Model(), list(prompt)
    got = exercise.generate(model.forward, prompt, max_tokens, EOS)
    case = {
        "prompt": given,
        "max_tokens": max_tokens,
        "eos_token_id": EOS,
        "calls of forward": model.calls,
        "got": got,
    }
    expect(given == prompt, "the prompt that was given was changed", **case)
    is_list = isinstance(got, list) and all(type(token) is int for token in got)
    expect(is_list, "the answer is not a list of token numbers", **case)
    expect(bool(model.calls), "forward was never called", **case)
    expect(model.calls[0] == given, "the first forward is not the whole prompt", **case)
    for call in model.calls[1:]:
        expect(len(call) == 1, "a later forward runs more than the newest token", **case)
    expect(len(got) <= max_tokens, "the answer is longer than max_tokens", **case)
    expect(EOS not in got[:-1], "the answer goes on after the end-of-sequence token", **case)
    wanted = _plain_loop(given, max_tokens)
    expect(got == wanted, "the answer is not that of the loop without a cache", **case, without=wanted)
    expect(
        len(model.calls) == len(got),
        "a token was run though nobody asked what comes after it",
        **case,
    )
    expect(model.seen == given + got[:-1], "the cache holds other tokens than the text", **case)


class _Model:
    """Scores from everything that was seen; the same on every machine. Some of them are equal."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.calls: list[list[int]] = []

    def forward(self, token_ids: list[int]) -> list[float]:
        """Scores after the last of all tokens given so far."""
        self.calls.append(list(token_ids))
        self.seen += token_ids
        expect(len(self.calls) <= 50, "forward was called for ever", calls=len(self.calls))
        return _scores(self.seen)


def _scores(text: list[int]) -> list[float]:
    state = 1
    for token in text:
        state = (state * 31 + token * 7 + 3) % 1009
    return [float((state * (k + 2) + 5 * k) % 11 % 7) for k in range(VOCABULARY)]


def _plain_loop(prompt: list[int], max_tokens: int) -> list[int]:
    answer: list[int] = []
    while len(answer) < max_tokens and EOS not in answer:
        scores = _scores(prompt + answer)
        answer.append(scores.index(max(scores)))
    return answer
