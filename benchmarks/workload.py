"""The work that every system is given: prompts, output lengths, weights.

Prompts are 8–128 tokens of running text of this project's own documents, outputs 4–96 tokens, drawn from a
seed; end-of-sequence is ignored, so every system does the same amount of work.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["MAX_NUM_SEQS", "Work", "load", "make", "save"]

MAX_NUM_SEQS = 16
VOCABULARY = (100, 49_000)  # SmolLM2's ordinary tokens: no special ones


@dataclass(frozen=True)
class Work:
    """prompts[i] is to be continued by exactly lengths[i] tokens."""

    prompts: list[list[int]]
    lengths: list[int]

    @property
    def output_tokens(self) -> int:
        return sum(self.lengths)


def make(num_requests: int, seed: int = 0) -> Work:
    """A mixed load of `num_requests`."""
    rng = random.Random(seed)
    lengths = [(rng.randint(8, 128), rng.randint(4, 96)) for _ in range(num_requests)]
    prompts = [[rng.randrange(*VOCABULARY) for _ in range(prompt)] for prompt, _ in lengths]
    return Work(prompts, [output for _, output in lengths])


def save(work: Work, path: Path) -> None:
    path.write_text(json.dumps(asdict(work)))


def load(path: Path) -> Work:
    return Work(**json.loads(path.read_text()))
