"""Write the loop with a cache: a solution."""

from collections.abc import Callable, Sequence


def generate(
    forward: Callable[[Sequence[int]], Sequence[float]],
    prompt_token_ids: Sequence[int],
    max_tokens: int,
    eos_token_id: int,
) -> list[int]:
    """The tokens of the answer."""
    answer: list[int] = []
    new = list(prompt_token_ids)
    while True:
        logits = forward(new)
        token = max(range(len(logits)), key=lambda i: logits[i])
        answer.append(token)
        if token == eos_token_id or len(answer) == max_tokens:
            return answer
        new = [token]
