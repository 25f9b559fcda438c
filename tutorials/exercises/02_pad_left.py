"""Lay prompts of many lengths into one table.

`prompts` are lists of token numbers, at least one prompt, and none of them empty. Return two new tables with
a row for each prompt, in order: the tokens, with `pad_token_id` on the left of every prompt that is shorter
than the longest; and whether the entry is padding, as True and False. No wider than needed.

The pad token may be a token like any other: a prompt may hold it.
"""


def pad_left(prompts: list[list[int]], pad_token_id: int) -> tuple[list[list[int]], list[list[bool]]]:
    """The tokens, and which of them are padding."""
    raise NotImplementedError("write the body of pad_left")
