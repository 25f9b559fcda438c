"""a token was run though nobody asked what comes after it"""


def generate(forward, prompt_token_ids, max_tokens, eos_token_id):
    """Runs the last token too."""
    answer = []
    logits = forward(prompt_token_ids)
    while len(answer) < max_tokens and eos_token_id not in answer:
        answer.append(logits.index(max(logits)))
        logits = forward(answer[-1:])
    return answer
