"""without the cache, tinycb computed another number"""


def computed_rows(num_prompt_tokens, num_output_tokens, has_cache):
    """Forgets that the text grows."""
    if has_cache:
        return num_prompt_tokens + num_output_tokens - 1
    return num_prompt_tokens * num_output_tokens
