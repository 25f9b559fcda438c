"""Whether two systems gave the same tokens, and where they did not, whether the model itself was undecided.

In fp32 a system must give the tokens of the reference. Where the reference's two largest logits are within
1e-5 of the largest, rounding decides, and another order of summation may decide otherwise: such a difference
is a *tie* and counts as agreement; what comes after it answers another text and is not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.workloads import Work

__all__ = ["REFERENCE", "TIE", "Agreement", "compare", "find_ties", "told_of"]

TIE = 1e-5  # of the largest logit
REFERENCE = "the reference"
Tokens = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of a workload's requests. differing: request → the first output that differs. ties: of these, by a tie.

    share: of all output tokens, those that stand before the first difference of their request.
    """

    requests: int
    differing: dict[int, int]
    share: float
    ties: int = 0

    @property
    def is_full(self) -> bool:
        """Whether every difference there is comes from a tie."""
        return self.ties == len(self.differing)

    def __str__(self) -> str:
        same = self.requests - len(self.differing)
        if not self.differing:
            return "all"
        if self.is_full:
            return f"{same} of {self.requests}, else ties"
        return f"{same} of {self.requests}, {100 * self.share:.0f} % of tokens"


def told_of(found: Agreement, system: str, reference: str) -> str:
    """As the page has it: with the reference's name, where that is not transformers."""
    if system == reference and not found.differing:
        return REFERENCE
    return str(found) if reference.startswith("transformers") else f"{found}, with {reference}"


def compare(tokens: Tokens, reference: Tokens) -> Agreement:
    """Request by request, up to the first token that differs."""
    differing: dict[int, int] = {}
    before = total = 0
    for index, (ours, theirs) in enumerate(zip(tokens, reference, strict=True)):
        pairs = zip(ours, theirs, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
        if first < max(len(ours), len(theirs)):
            differing[index] = first
        before, total = before + first, total + len(theirs)
    return Agreement(len(reference), differing, before / total if total else 1.0)


def find_ties(found: Agreement, reference: Tokens, work: Work, model: Path) -> Agreement:
    """Ask transformers, in fp32, how decided it was at each first difference."""
    import torch
    from transformers import LlamaForCausalLM

    llama = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ties = 0
    for request, position in found.differing.items():
        ids = [*work.prompts[request], *reference[request][:position]]
        with torch.inference_mode():
            logits = llama(torch.tensor([ids])).logits[0, -1]  # (V,)
        largest, second = logits.topk(2).values.tolist()
        ties += largest - second <= TIE * abs(largest)
    return Agreement(found.requests, found.differing, found.share, ties)
