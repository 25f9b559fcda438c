"""Looks for steps: the next event of a kind, and where a condition begins to hold.

A search is a function that looks a bit further each time it is called, and returns True when it is over: it
has then moved the session, or said why not. So a long search neither blocks the screen nor outlives a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tinycb.tui.conditions import Condition
from tinycb.tui.history import Life

if TYPE_CHECKING:
    from tinycb.tui.session import Session

__all__ = ["begins", "condition_search", "event_search"]


def event_search(session: Session, direction: int) -> Callable[[], bool]:
    """The nearest event of the session's kind, after (1) or before (-1) its step."""
    start, kind = session.index, session.kind
    what = kind or "event"

    def search() -> bool:
        history = session.history
        found = history.next_event(kind, start, direction)
        if found is None and not session.is_read and direction > 0:
            session.message = f"looking for the next {what}: step {history.num_steps} …"
            return False
        session.message = f"no {what} {'after' if direction > 0 else 'before'} this step"
        if found is not None:
            session.index = found
            step = session.source.steps[found]
            session.message = f"{what} in step {step}: {_what_happened(session, found)}"
        return True

    return search


def _what_happened(session: Session, index: int) -> str:
    record = session.source[index]
    parts = []
    if session.kind == "first token":
        lives = (life for life in session.history.lives if isinstance(life, Life))
        parts.append(f"of {', '.join(life.request_id for life in lives if life.first_token == index)}")
    for word, names in (
        ("preempted", record.preempted), ("finished", record.finished), ("admitted", record.admitted),
        ("refused", record.refused), ("prefix hit", record.prefix_hits), ("aborted", record.aborted),
        ("failed", record.errors),
    ):  # fmt: skip
        if names:
            parts.append(f"{word} {', '.join(names)}")
    return "; ".join(parts) or "first token"


def begins(session: Session, condition: Condition, index: int) -> bool:
    """Whether a condition holds in a step, and did not in the one before."""
    if not condition.holds(session.source, session.history, index):
        return False
    return index == 0 or not condition.holds(session.source, session.history, index - 1)


def condition_search(session: Session, condition: Condition) -> Callable[[], bool]:
    """The next step in which a condition begins to hold; after the last one, from the first on."""
    start, at, wrapped = session.index, session.index + 1, False

    def search() -> bool:
        nonlocal at, wrapped
        if at >= session.num_steps and session.is_read:
            if wrapped or session.live is not None:
                session.message = f"{condition.text} does not begin to hold in any later step"
                return True
            at, wrapped = 0, True
        if wrapped and at >= start:
            session.message = f"{condition.text} never holds"
            if begins(session, condition, start):
                session.message = f"{condition.text} begins to hold here, and in no other step"
            elif condition.holds(session.source, session.history, start):
                session.message = f"{condition.text} holds here, and begins to in no other step"
            return True
        if at >= session.history.num_steps:
            return False
        session.message = f"looking for {condition.text}: step {session.source.steps[at]} …"
        if not begins(session, condition, at):
            at += 1
            return False
        session.index = at
        session.message = f"{condition.text} begins to hold here" + (" (from the first step on)" * wrapped)
        return True

    return search
