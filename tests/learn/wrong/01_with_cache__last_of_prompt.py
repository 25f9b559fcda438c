"""the first forward is not the whole prompt"""


def generate(forward, prompt_token_ids, max_tokens, eos_token_id):
    """Runs the prompt one token at a time."""
    answer = []
    for token in prompt_token_ids:
        logits = forward([token])
    while True:
        answer.append(logits.index(max(logits)))
        if answer[-1] == eos_token_id or len(answer) == max_tokens:
            return answer
        logits = forward(answer[-1:])
