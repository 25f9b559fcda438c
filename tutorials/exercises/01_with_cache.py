"""Write the loop with a cache.

`forward(token_ids)` runs these tokens behind all that it has been given before: it keeps their keys and
values, so that they need never be given again. It returns the logits after the last of them, a list with one
score for each token of the vocabulary.

Return the answer, greedily: at most `max_tokens` tokens (at least one), and none after `eos_token_id`, which
is itself part of the answer. Run nothing twice, and nothing that nobody asked for. Of equal scores the first
counts.
"""

from collections.abc import Callable, Sequence


def generate(
    forward: Callable[[Sequence[int]], Sequence[float]],
    prompt_token_ids: Sequence[int],
    max_tokens: int,
    eos_token_id: int,
) -> list[int]:
    """The tokens of the answer."""
    raise NotImplementedError("write the body of generate")
