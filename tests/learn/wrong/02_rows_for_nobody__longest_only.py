"""the rows in slots of those that are done are miscounted"""


def rows_for_nobody(prompts, answers):
    """Compares only the longest with the shortest."""
    return (max(prompts) - min(prompts)) + (max(answers) - min(answers))
