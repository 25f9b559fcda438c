"""the rows in slots of those that are done are miscounted"""


def rows_for_nobody(prompts, answers):
    """Forgets the slots that are held."""
    return max(prompts) * len(prompts) - sum(prompts)
