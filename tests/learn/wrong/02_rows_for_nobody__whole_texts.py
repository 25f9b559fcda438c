"""tinycb computed another number of rows for nobody"""


def rows_for_nobody(prompts, answers):
    """Pads whole texts, so that a short answer makes up for a long prompt."""
    texts = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    return sum(max(texts) - text for text in texts)
