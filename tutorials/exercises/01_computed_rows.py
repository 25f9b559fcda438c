"""Count the rows that the model computes for one request.

A prompt of `num_prompt_tokens` tokens (at least one) gets an answer of `num_output_tokens` tokens (at least
one). Each forward gives one token of the answer. How many rows do all forwards together compute, with a KV
cache, and without one?

Think of the last token of the answer: who needs its row?
"""


def computed_rows(num_prompt_tokens: int, num_output_tokens: int, has_cache: bool) -> int:
    """Rows of all forwards, summed."""
    raise NotImplementedError("write the body of computed_rows")
