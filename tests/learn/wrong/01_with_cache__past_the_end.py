"""the answer goes on after the end-of-sequence token"""


def generate(forward, prompt_token_ids, max_tokens, eos_token_id):
    """Does not look for the end."""
    answer, new = [], list(prompt_token_ids)
    for _ in range(max_tokens):
        logits = forward(new)
        new = [logits.index(max(logits))]
        answer += new
    return answer
