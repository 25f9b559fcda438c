"""the padding before shorter prompts is miscounted"""


def rows_for_nobody(prompts, answers):
    """As if there were no cache: each forward padded to the longest text so far."""
    longest = max(p + a for p, a in zip(prompts, answers, strict=True))
    return sum(longest - min(p + a, longest) for p, a in zip(prompts, answers, strict=True)) * 2
