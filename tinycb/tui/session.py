"""What the keys do: the step, the selection, marks, events, conditions, playing. No terminal in it.

The screen calls these methods and then draws `view`. A long trace is taken into the history slice by slice
(`work`), and whatever waits for more of it, such as the search for an event, goes on as it grows.

Next: `screen.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tinycb.tracing.codec import TraceError
from tinycb.tui.conditions import Condition, ConditionError, parse
from tinycb.tui.drawing import View
from tinycb.tui.finding import begins, condition_search, event_search
from tinycb.tui.history import EVENTS
from tinycb.tui.intake import Intake
from tinycb.tui.look import Look
from tinycb.tui.selection import Pick, Selection
from tinycb.tui.snapshot import Snapshots
from tinycb.tui.source import LiveRun, Source

__all__ = ["SPEEDS", "Session"]

SPEEDS = (0.5, 1, 2, 4, 8, 16, 32)  # steps a second
AT_ONCE = 200  # records that are taken in before the first picture, however long that takes


class Session:
    """A source that is looked at. index: of the step that is shown.

    message: what the last key has to say, if anything. error: the source is broken from here on.
    """

    def __init__(self, source: Source, live: LiveRun | None = None) -> None:
        self.source = source
        self.live = live
        self.header: dict[str, Any] = dict(source.header)
        self.snapshots = Snapshots(source)
        self.intake = Intake(source)
        self.history = self.intake.history
        self.index = 0
        self.selection = Selection()
        self.marks: dict[str, int] = {}
        self.kind: str | None = None
        self.speed = 2.0
        self.playing = live is not None
        self.zoomed = False
        self.message = ""
        self.condition: Condition | None = None
        self._search: Callable[[], bool] | None = None
        self._behind: Iterator[None] | None = None
        for _ in range(min(AT_ONCE, len(source))):
            self._observe()
        if source.truncated and live is None:
            self.message = self.truncation
        self._select_somebody()

    def _select_somebody(self) -> None:
        if self.selection.request_id is None and len(self.source):
            running = self.source[self.index].running
            if running:
                self.selection = Selection(running[0])

    @property
    def truncation(self) -> str:
        return f"the trace ends in the middle of a line; its {len(self.source)} whole steps are here"

    def index_of(self, step: int) -> int:
        """The index of a step's number; a negative one counts from the end. Raises ValueError."""
        steps = self.source.steps
        index = step + self.num_steps if step < 0 else step - steps.start
        if not 0 <= index < self.num_steps:
            last = steps.start + self.num_steps - 1
            raise ValueError(f"there is no step {step}: they go from {steps.start} to {last}")
        return index

    def select(self, text: str) -> None:
        """`B` or `B:5`. Raises ValueError if no request has that id."""
        name, colon, position = text.rpartition(":")
        if not colon or not position.isdigit():
            name, position = text, ""
        if self.history.life(name) is None:
            raise ValueError(f"there is no request {name!r} up to step {self.history.num_steps - 1}")
        self.selection = Selection(name, int(position) if position else None)

    # ── taking the source in ──────────────────────────────────────────────────────────────────────────

    @property
    def num_steps(self) -> int:
        """Steps that can be shown."""
        return self.intake.num_steps

    @property
    def is_read(self) -> bool:
        return self.intake.is_done

    @property
    def is_busy(self) -> bool:
        """Whether `work` has something to do."""
        return not self.is_read or self._search is not None or self._behind is not None

    def _observe(self) -> None:
        """Take the next record into the history."""
        self.intake.next()
        if self.intake.error:
            self.message = self.intake.error
            self.index = max(0, min(self.index, self.num_steps - 1))

    def work(self, seconds: float) -> None:
        """Take in more of the source, and go on with a search, for about so long."""
        end = time.perf_counter() + seconds
        while self.is_busy and time.perf_counter() < end:
            if self._search is not None and self._search():
                self._search = None
            elif self._behind is not None:
                self._make_behind()
            elif not self.is_read:
                self._observe()

    def _make_behind(self) -> None:
        """Snapshots for whoever goes on backwards; a broken line is told when it is shown."""
        try:
            if self._behind is not None:
                next(self._behind)
        except (StopIteration, TraceError):
            self._behind = None

    def refresh(self) -> bool:
        """Look for new steps of a live run. Whether there are any."""
        try:
            if not self.source.refresh():
                return False
        except TraceError as error:
            self.message = str(error)
            return False
        at_end = self.index >= self.history.num_steps - 1
        while not self.is_read:
            self._observe()
        if self.live is not None and self.playing and at_end:
            before, self.index = self.index, max(0, self.num_steps - 1)
            self._break_between(before, self.index)
        self._select_somebody()
        return True

    def _break_between(self, before: int, after: int) -> None:
        if self.condition is None:
            return
        for index in range(before + 1, after + 1):
            if begins(self, self.condition, index):
                self.index = index
                self.pause()
                self.message = f"paused: {self.condition.text}"
                return

    def view(self, look: Look) -> View:
        """All that the panels show."""
        return View(
            snapshot=self.snapshots.at(self.index),
            history=self.history,
            selection=self.selection,
            look=look,
            header=self.header,
            num_steps=self.num_steps,
            zoomed=self.zoomed,
        )

    # ── moving ────────────────────────────────────────────────────────────────────────────────────────

    def go(self, index: int) -> None:
        self._search = None
        self.index = max(0, min(self.num_steps - 1, index))

    def step(self, delta: int) -> None:
        """Forward at the end of a paused live run, the engine runs one more."""
        live = self.live
        at_end = self.index >= self.num_steps - 1
        if live is not None and delta > 0 and at_end and live.is_paused and not live.is_over:
            live.step()
            self.playing = True  # follow it; the run stays paused
            return
        if live is not None and delta < 0:
            self.playing = False
        self.go(self.index + delta)
        if delta < 0:
            self._behind = self.snapshots.behind(self.index)

    def go_to_end(self) -> None:
        self.go(self.num_steps - 1)
        if self.live is not None and not self.live.is_paused:
            self.playing = True

    def goto(self, text: str) -> None:
        """`12`, `+5` or `-5`. Raises ValueError, for the screen, if there is no such step."""
        text = text.strip()
        steps = self.source.steps
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is no step: type a number, or +N or -N") from None
        index = self.index + number if text[0] in "+-" else number - steps.start
        self.go(self.index_of(index + steps.start if index >= 0 else -self.num_steps - 1))

    def choose(self, pick: Pick) -> None:
        self.selection = pick.selection
        if pick.index is not None:
            self.go(pick.index)

    def choose_request(self, delta: int) -> None:
        """The request before or after the selected one, of those that have come."""
        names = self.history.present(self.index)
        if not names:
            return
        selected = self.selection.request_id
        at = names.index(selected) + delta if selected in names else 0
        self.selection = Selection(names[max(0, min(len(names) - 1, at))])

    # ── events, conditions, marks ─────────────────────────────────────────────────────────────────────

    def next_kind(self) -> None:
        kinds = (None, *EVENTS)
        self.kind = kinds[(kinds.index(self.kind) + 1) % len(kinds)]
        self.message = f"n and N go to the next and the previous {self.kind or 'event of any kind'}"

    def to_event(self, direction: int) -> None:
        """Go to the nearest event; if the history has not come that far, as soon as it has."""
        self._look_for(event_search(self, direction))

    def _look_for(self, search: Callable[[], bool]) -> None:
        self._search = None if search() else search

    def break_at(self, text: str) -> None:
        """Go to the next step in which a condition begins to hold; without text, the last condition again.

        Raises ConditionError if it cannot be understood.
        """
        if text.strip():
            self.condition = parse(text)
        if self.condition is None:
            raise ConditionError("type a condition, for example free<2, preempted, A.decode, refcount>1")
        self._look_for(condition_search(self, self.condition))
        self.work(0.02)

    def cancel(self) -> None:
        self._search = None
        self.message = ""

    def set_mark(self, letter: str) -> None:
        self.marks[letter] = self.index
        self.message = f"mark {letter} at step {self.source.steps[self.index]}"

    def to_mark(self, letter: str) -> None:
        if letter not in self.marks:
            there = ", ".join(sorted(self.marks)) or "none yet: m and a letter sets one"
            self.message = f"there is no mark {letter}; there are {there}"
            return
        here = self.index
        self.go(self.marks[letter])
        self.marks["'"] = here

    # ── playing ───────────────────────────────────────────────────────────────────────────────────────

    def toggle(self) -> None:
        """Play or pause. Of a live run, the engine itself."""
        live = self.live
        if live is not None and not live.is_over:
            if live.is_paused:
                live.resume()
                self.go_to_end()
                self.playing = True
            else:
                live.pause()  # the step that is under way is still followed
            return
        self.playing = not self.playing
        if self.playing and self.index >= self.num_steps - 1:
            self.go(0)

    def pause(self) -> None:
        if self.live is not None and not self.live.is_over:
            self.live.pause()
        self.playing = False

    def faster(self, direction: int) -> None:
        at = SPEEDS.index(self.speed) + direction
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]
        self.message = f"{self.speed:g} steps a second"

    def tick(self) -> None:
        """One step of a replay that plays; it stops at its end, and where the condition begins to hold."""
        if self.live is not None and (not self.live.is_over or self.refresh()):
            return
        if self.index >= self.num_steps - 1:
            self.playing = False
            return
        before = self.index
        self.index += 1
        self._break_between(before, self.index)
