"""a prompt does not end at the right edge"""


def pad_left(prompts, pad_token_id):
    """Pads on the right."""
    width = max(map(len, prompts))
    tokens = [prompt + [pad_token_id] * (width - len(prompt)) for prompt in prompts]
    return tokens, [[i >= len(prompt) for i in range(width)] for prompt in prompts]
