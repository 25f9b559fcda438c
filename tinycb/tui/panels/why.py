"""Why: what was decided in this step, each decision as its sentence, and what became of the selected request.

The sentences come from the trace with their numbers. Only where a request has no decision, because decoding
one token is the rule and because those behind the head of the queue wait for the head, is it said here.
"""

from __future__ import annotations

import textwrap

from rich.style import Style

from tinycb.tui.drawing import Drawing
from tinycb.tui.line import Line, clip
from tinycb.tui.selection import Pick, Selection

__all__ = ["WhyDrawing", "about"]

_SIGNS = {
    "admit": "→", "prefill": "█", "wait": "┄", "preempt": "×", "hold": "·", "finish": "●",
    "return": "●", "abort": "×", "refuse": "⊘",
}  # fmt: skip
LOOKED_THROUGH = 64  # places of the queue; each may have to be read from the file
_STYLES = {"preempt": "bad", "abort": "bad", "refuse": "bad", "admit": "good", "finish": "accent"}


class WhyDrawing(Drawing):
    name = "why"
    title = "Why"
    help = "This step's decisions with their numbers. ↑ ↓ go from one request to the next."

    def lay_out(self) -> None:
        record, look = self.view.snapshot.record, self.view.look
        self.lines: list[
            tuple[str | None, str, Style, Style]
        ] = []  # request, text, styles of letter and text
        names = [decision.request_id for decision in record.decisions]
        self.wide = 1 + max((len(self.view.letter(name)) for name in names), default=1)
        width = max(20, self.width - self.wide - 5)
        said = set()
        for decision in record.decisions:
            name = decision.request_id
            said.add(name)
            kind = _STYLES.get(decision.action)
            self._say(name, _SIGNS.get(decision.action, " "), decision.sentence, kind, width)
        selected = self.view.selection.request_id
        if selected is not None and selected not in said:
            self._say(selected, "?", about(self), None, width)
        if record.error is not None:
            self._say(None, "!", f"the forward failed and the step was undone: {record.error}", "bad", width)
        if not self.lines:
            text = "no decision: every request decoded one token, which is the rule"
            if not record.scheduled:
                text = "nothing to do in this step"
            self.lines.append((None, "  " + text, look.dim, look.dim))
        self.extent = (self.width, len(self.lines))

    def _say(self, name: str | None, sign: str, sentence: str, kind: str | None, width: int) -> None:
        look = self.view.look
        chosen = name is not None and name == self.view.selection.request_id
        style = look.style(kind) if kind else look.text
        if chosen:
            style = style + Style(bold=True)
        parts = textwrap.wrap(clip(sentence, 1000), width) or [""]
        letter_style = look.dim
        letter, wide = "", self.wide
        if name is not None:
            letter = self.view.letter(name)
            letter_style = look.chosen if chosen else look.solid(self.view.sign(name))
        for i, part in enumerate(parts):
            head = f"{letter:<{wide}}{sign} " if i == 0 else " " * (wide + 2)
            self.lines.append((name, head + part, letter_style if i == 0 else look.text, style))

    def line(self, y: int, scroll_x: int, scroll_y: int) -> Line:
        line = self.blank()
        if y + scroll_y < len(self.lines):
            name, text, letter_style, style = self.lines[y + scroll_y]
            line.put(1, text, style)
            if name is not None and text[:1] != " ":
                line.put(1, self.view.letter(name), letter_style)
        return line

    def at(self, x: int, y: int, scroll_x: int, scroll_y: int) -> Pick | None:
        at = y + scroll_y
        name = self.lines[at][0] if at < len(self.lines) else None
        return Pick(Selection(name)) if name is not None else None

    def _names(self) -> list[str]:
        names: list[str] = []
        for name, *_ in self.lines:
            if name is not None and name not in names:
                names.append(name)
        return names

    def anchor(self) -> tuple[int, int, int, int] | None:
        selected = self.view.selection.request_id
        rows = [i for i, line in enumerate(self.lines) if line[0] == selected and selected is not None]
        return (0, rows[0], 1, len(rows)) if rows else None

    def move(self, dx: int, dy: int) -> Pick | None:
        names, selected = self._names(), self.view.selection.request_id
        if not names:
            return self.step_request(dx + dy)
        at = names.index(selected) + (dx + dy) if selected in names else 0
        return Pick(Selection(names[max(0, min(len(names) - 1, at))]))


def about(drawing: Drawing) -> str:
    """What the selected request did in this step, where no decision says it."""
    view = drawing.view
    snapshot, record, name = view.snapshot, view.snapshot.record, view.selection.request_id
    assert name is not None
    life = view.history.life(name, snapshot.index)
    if name in record.scheduled:
        count = record.scheduled[name]
        if count == 1 and name in record.sampled:
            return f"{name} decodes one token: the rule, which needs no decision"
        return f"{name} computes {count} tokens"
    if name in record.running:
        return f"{name} holds its place and runs nothing in this step"
    waiting = snapshot.state.waiting
    for place in range(min(len(waiting), LOOKED_THROUGH)):
        if waiting[place].request_id == name:
            if place == 0:
                return f"{name} waits at the head of the queue"
            return f"{name} waits at place {place + 1} of the queue, behind {waiting[0].request_id}, its head"
    refusal = view.history.refused.get(name)
    if life is None and refusal is not None:
        came = refusal.arrived < snapshot.index
        return f"{name} was refused in step {refusal.arrived}" if came else f"{name} is not here yet"
    if life is not None:
        if life.arrived > snapshot.index:
            return f"{name} has not arrived yet: it comes in step {life.arrived}"
        if 0 <= life.ended <= snapshot.index:
            return f"{name} ended in step {life.ended} ({life.end})"
        if life.code_at(snapshot.index) == "w" and waiting:
            return f"{name} waits far back in the queue of {len(waiting)}, behind {waiting[0].request_id}"
    return f"{name} is not here in this step"
