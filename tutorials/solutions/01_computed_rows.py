"""Count the rows that the model computes for one request: a solution."""


def computed_rows(num_prompt_tokens: int, num_output_tokens: int, has_cache: bool) -> int:
    """Rows of all forwards, summed."""
    if has_cache:
        return num_prompt_tokens + num_output_tokens - 1
    return sum(num_prompt_tokens + i for i in range(num_output_tokens))
