"""an answer of one token does not take one forward of the prompt"""


def computed_rows(num_prompt_tokens, num_output_tokens, has_cache):
    """Takes the prompt for given, and counts the decode rows."""
    if has_cache:
        return num_output_tokens
    return sum(num_prompt_tokens + i for i in range(num_output_tokens))
