"""The kinds of question, those that tell most first.

A kind gives no question where nothing of it happens, or where fewer than two wrong answers are plausible.
Next: `quiz.py`, which chooses.
"""

from __future__ import annotations

from tinycb.tracing import quiz_numbers as numbers
from tinycb.tracing import quiz_requests as requests
from tinycb.tracing.quiz_question import Kind

__all__ = ["KINDS"]

KINDS: dict[str, Kind] = {
    "preempted": Kind(lambda r: r.preempted, requests.preempted),
    "stopped": Kind(lambda r: any(d.action == "wait" for d in r.decisions), requests.stopped),
    "tokens": Kind(lambda r: any(n > 1 for n in r.scheduled.values()), numbers.chunk),
    "hit": Kind(lambda r: r.prefix_hits, numbers.hit),
    "admitted": Kind(lambda r: r.admitted or r.num_waiting, requests.admitted),
    "new blocks": Kind(lambda r: any(r.blocks_allocated.values()), requests.new_blocks),
    "finished": Kind(lambda r: r.finished, requests.finished),
    "samples": Kind(lambda r: r.scheduled.keys() != r.sampled.keys(), requests.samples),
    "runs": Kind(lambda r: r.admitted or len(r.scheduled) < len(r.running), requests.runs),
    "block": Kind(lambda r: any(len(b) == 1 for b in r.blocks_allocated.values()), numbers.block),
    "free": Kind(lambda r: r.admitted or r.preempted, numbers.free),
    "padding": Kind(lambda r: r.num_padded, numbers.padding),
}
