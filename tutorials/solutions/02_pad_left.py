"""Lay prompts of many lengths into one table: a solution."""


def pad_left(prompts: list[list[int]], pad_token_id: int) -> tuple[list[list[int]], list[list[bool]]]:
    """The tokens, and which of them are padding."""
    width = max(len(prompt) for prompt in prompts)
    tokens, is_padding = [], []
    for prompt in prompts:
        missing = width - len(prompt)
        tokens.append([pad_token_id] * missing + prompt)
        is_padding.append([True] * missing + [False] * len(prompt))
    return tokens, is_padding
