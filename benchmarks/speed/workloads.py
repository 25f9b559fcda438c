"""What every system is given: prompts, and how many tokens to continue each by.

Prompts are tokens drawn from a seed, so no two share a prefix; end-of-sequence is ignored, so that every
system does the same amount of work.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MAX_NUM_SEQS", "WORKLOADS", "Work", "Workload", "warm_up"]

MAX_NUM_SEQS = 16
FIRST_TOKEN, LAST_TOKEN = 100, 49_000  # SmolLM2's ordinary tokens: no special ones


@dataclass(frozen=True, slots=True)
class Work:
    """prompts[i] is to be continued by exactly lengths[i] tokens."""

    prompts: Sequence[Sequence[int]]
    lengths: Sequence[int]

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    @property
    def output_tokens(self) -> int:
        return sum(self.lengths)


@dataclass(frozen=True, slots=True)
class Workload:
    """prompt, output: the least and the most tokens of each request."""

    name: str
    requests: int
    prompt: tuple[int, int]
    output: tuple[int, int]

    def make(self, vocab_size: int, seed: int = 0) -> Work:
        """The prompts and lengths, the same for the same vocabulary and seed."""
        rng = random.Random(seed)
        tokens = FIRST_TOKEN, min(LAST_TOKEN, vocab_size)
        sizes = [(rng.randint(*self.prompt), rng.randint(*self.output)) for _ in range(self.requests)]
        prompts = [[rng.randrange(*tokens) for _ in range(prompt)] for prompt, _ in sizes]
        return Work(prompts, [output for _, output in sizes])

    def __str__(self) -> str:
        prompt, output = (
            str(low) if low == high else f"{low}–{high}" for low, high in (self.prompt, self.output)
        )
        return f"{self.requests} requests, prompts of {prompt} tokens, outputs of {output}"


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mixed16", 16, (8, 128), (4, 96)),
        Workload("mixed64", 64, (8, 128), (4, 96)),
        Workload("decode-heavy", 32, (16, 16), (256, 256)),
        Workload("prefill-heavy", 32, (512, 512), (8, 8)),
    )
}


def warm_up(work: Work) -> Work:
    """A few short outputs: what only a first forward costs, such as compiling, is paid before that."""
    return Work(work.prompts[:4], [min(4, length) for length in work.lengths[:4]])
