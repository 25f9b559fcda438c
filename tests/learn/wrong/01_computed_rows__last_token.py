"""the row of the last token was counted, which nobody computes"""


def computed_rows(num_prompt_tokens, num_output_tokens, has_cache):
    """Counts the tokens of the whole text."""
    if has_cache:
        return num_prompt_tokens + num_output_tokens
    return sum(num_prompt_tokens + i for i in range(num_output_tokens))
