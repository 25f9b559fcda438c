"""Count the waste of one static batch.

Request i of the batch has a prompt of `prompts[i]` tokens and an answer of `answers[i]` tokens, each at least
one; all begin together, with a KV cache. How many rows does the model compute for nobody, until the batch
ends: padding before shorter prompts, and the slots of those that are done?

An answer of n tokens needs one forward of its prompt and n - 1 of one row.
"""


def rows_for_nobody(prompts: list[int], answers: list[int]) -> int:
    """Rows of padding, summed over the forwards of the batch."""
    raise NotImplementedError("write the body of rows_for_nobody")
