"""two prompts are left half done"""


def share(running, waiting, budget, max_num_seqs):
    """Gives everybody the same share."""
    names = {**running, **dict(list(waiting.items())[: max_num_seqs - len(running)])}
    scheduled = {}
    for name in list(names)[:budget]:
        scheduled[name] = min(names[name], budget // min(len(names), budget))
    return scheduled
