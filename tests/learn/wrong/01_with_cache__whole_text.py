"""a later forward runs more than the newest token"""


def generate(forward, prompt_token_ids, max_tokens, eos_token_id):
    """The plain loop: gives the whole text each time, though the cache has it."""
    text = list(prompt_token_ids)
    for _ in range(max_tokens):
        logits = forward(text)
        text.append(logits.index(max(logits)))
        if text[-1] == eos_token_id:
            break
    return text[len(prompt_token_ids) :]
