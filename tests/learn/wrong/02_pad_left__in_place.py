"""the prompts that were given were changed"""


def pad_left(prompts, pad_token_id):
    """Fills up the lists that it was given."""
    width = max(map(len, prompts))
    is_padding = [[i < width - len(prompt) for i in range(width)] for prompt in prompts]
    for prompt in prompts:
        while len(prompt) < width:
            prompt.insert(0, pad_token_id)
    return prompts, is_padding
