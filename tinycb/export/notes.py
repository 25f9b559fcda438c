"""What stands on a slice: a request's numbers in a step, the sentences of its decisions, its latencies.

Knows nothing of any format.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from typing import Any

from tinycb.request import RequestMetrics
from tinycb.scheduling.decisions import Decision
from tinycb.tracing.records import StepRecord

__all__ = ["Why", "latencies", "work"]


class Why:
    """The decisions of a step by request. waiting: who is told to wait, and for what, in a word or two."""

    def __init__(self, record: StepRecord) -> None:
        self._decisions: dict[str, list[Decision]] = defaultdict(list)
        self.waiting: dict[str, str] = {}
        for decision in record.decisions:
            self._decisions[decision.request_id].append(decision)
            if decision.action == "wait":
                self.waiting[decision.request_id] = str(decision.reason).replace("_", " ")

    def notes(self, name: str, *actions: str) -> dict[str, Any]:
        """The sentences of a request's decisions with one of these actions."""
        if name not in self._decisions:
            return {}
        sentences = [d.sentence for d in self._decisions[name] if d.action in actions]
        return {"why": sentences[0] if len(sentences) == 1 else sentences} if sentences else {}


def work(record: StepRecord, name: str, num_prompt: int) -> tuple[str, dict[str, Any]]:
    """What a request runs in a step: its kind, and its numbers."""
    count, computed, sampled = record.scheduled[name], record.num_computed[name], name in record.sampled
    decodes = sampled and count == 1 and computed >= num_prompt
    notes: dict[str, Any] = {"step": record.step, "num_computed_tokens": computed}
    if not decodes:
        notes["num_scheduled_tokens"] = count
    if sampled:
        notes |= _token(record, name, record.sampled[name])
    if name in record.prefix_hits:
        notes["prefix_hit_tokens"] = record.prefix_hits[name]
    if name in record.blocks_allocated:
        notes["blocks_allocated"] = " ".join(map(str, record.blocks_allocated[name]))
    return "decode" if decodes else "prefill chunk", notes


def _token(record: StepRecord, name: str, token: int) -> dict[str, Any]:
    text = record.sampled_texts.get(name)
    return {"sampled": token} if text is None else {"sampled": token, "text": text}


def latencies(metrics: RequestMetrics) -> dict[str, Any]:
    """What is one number and known; seconds are seconds of the trace."""
    values = ((field.name, getattr(metrics, field.name)) for field in fields(metrics))
    return {name: value for name, value in values if isinstance(value, int | float)}
