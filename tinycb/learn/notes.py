"""What a chapter did while it ran: who runs it can look whether all that a chapter needs was there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinycb.learn.questions import Prediction
    from tinycb.learn.runs import Run

__all__ = ["Notes"]


@dataclass
class Notes:
    """In the order in which it happened."""

    said: list[str] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    vllm: list[tuple[str, str]] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    predictions: list[Prediction] = field(default_factory=list)
    exercises: list[str] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    next: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """What a finished chapter must have and this one has not."""
        wanted = {
            "a term": bool(self.terms),
            "source shown by name": bool(self.sources),
            "a run": bool(self.runs),
            "two questions": len(self.predictions) >= 2,
            "an answer to every question": all(p.answer is not None for p in self.predictions),
            "an exercise": bool(self.exercises),
            "where it stands in vLLM": bool(self.vllm),
            "a run kept for the visualizer": bool(self.kept),
            "what to read next": bool(self.next),
        }
        return [name for name, there in wanted.items() if not there]
