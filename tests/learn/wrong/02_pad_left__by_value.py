"""a token of a prompt was called padding, or padding a token"""


def pad_left(prompts, pad_token_id):
    """Takes every pad token for padding."""
    width = max(map(len, prompts))
    tokens = [[pad_token_id] * (width - len(prompt)) + prompt for prompt in prompts]
    return tokens, [[token == pad_token_id for token in row] for row in tokens]
