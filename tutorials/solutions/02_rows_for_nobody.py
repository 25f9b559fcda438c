"""Count the waste of one static batch: a solution."""


def rows_for_nobody(prompts: list[int], answers: list[int]) -> int:
    """Rows of padding, summed over the forwards of the batch."""
    before_prompts = sum(max(prompts) - prompt for prompt in prompts)
    after_the_end = sum(max(answers) - answer for answer in answers)
    return before_prompts + after_the_end
