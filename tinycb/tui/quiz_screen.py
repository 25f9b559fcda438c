"""The main screen with a question below it. An answer lets the next step be seen, and space goes on."""

from __future__ import annotations

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tinycb.tui.app import Visualizer
from tinycb.tui.bars import Bar
from tinycb.tui.command_line import CommandLine
from tinycb.tui.help import HelpScreen
from tinycb.tui.layout import WIDE, Arrangement, Box, arrange
from tinycb.tui.line import Line, clip
from tinycb.tui.look import Look
from tinycb.tui.quiz import LETTERS, Curtain, Quiz
from tinycb.tui.quiz_panel import QuizDrawing, QuizPanel, quiz_lines
from tinycb.tui.screen import MainScreen
from tinycb.tui.selection import Selection
from tinycb.tui.session import Session

__all__ = ["QuizApp", "QuizScreen", "arrange_quiz"]

SMALLEST = (60, 18)
LEAST_PANEL = 6  # lines of a panel above the question, its border included
CAUGHT_UP = 0.2  # seconds in which the history may be brought to the step, before it goes on in slices


def arrange_quiz(width: int, height: int, tab: str, num_requests: int, wanted: int) -> Arrangement:
    """The question at the bottom, in `wanted` lines if there is room; above it all panels, or one or two."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return Arrangement("small", {})
    asked = max(7, min(wanted, height - 3 - LEAST_PANEL))
    box = Box(0, height - 1 - asked, width, asked)
    if width >= WIDE[0] and height - asked >= WIDE[1]:
        return Arrangement("all", {**arrange(width, height - asked, tab, num_requests).boxes, "quiz": box})
    body = height - 3 - asked
    if width < WIDE[0]:
        return Arrangement("tabs", {tab: Box(0, 2, width, body), "quiz": box})
    other, left = "requests" if tab == "blocks" else "blocks", width * 55 // 100
    sides = {tab: Box(0, 2, left, body), other: Box(left, 2, width - left, body)}
    return Arrangement("tabs", {**sides, "quiz": box})


class QuizScreen(MainScreen):
    """curtain: the session's source, which ends where the question begins."""

    DEFAULT_CSS = """
    QuizScreen > QuizPanel { border: round $panel-focus; }
    """

    def __init__(self, session: Session, look: Look, quiz: Quiz, curtain: Curtain) -> None:
        super().__init__(session, look)
        self.quiz = quiz
        self.curtain = curtain
        self.quiz_panel = QuizPanel(QuizDrawing(quiz))
        self.quiz_panel.can_focus = False

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self.quiz_panel

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────

    def arrange_panels(self) -> None:
        width, height = self.app.size
        wanted = len(quiz_lines(self.quiz, width - 2, self.look)) + 2
        lives = len(self.session.history.lives)
        arrangement = arrange_quiz(width, height, self.front, lives, wanted)
        self.set_mode(arrangement.mode)
        if arrangement.mode == "small":
            least = " × ".join(map(str, SMALLEST))
            text = f"This terminal is {width} × {height}; a quiz needs at least {least}."
            self.query_one("#small", Static).update(text)
        for name, panel in self.panels.items():
            panel.put(arrangement.boxes.get(name))
        self.quiz_panel.put(arrangement.boxes.get("quiz"))

    def draw(self) -> None:
        super().draw()
        if self.quiz_panel.display:
            self.quiz_panel.show(self.session.view(self.look))

    def draw_footer(self) -> None:
        if self.session.message or self.current.inside:
            super().draw_footer()
            return
        line = Line(self.query_one("#footer").size.width, self.look.text)
        keys = [("q", "quit")]
        if self.quiz.question is not None and not self.quiz.is_answered:
            last = LETTERS[len(self.quiz.question.choices) - 1]
            keys = [(f"a … {last}", "answer"), ("=", "type it"), ("x", "show it"), *keys]
        elif self.quiz.question is not None:
            keys = [("space", "go on"), *keys]
        x = 1
        for shown, text in (*keys, ("← →", "step"), ("tab", "panel"), ("?", "help")):
            if x + len(shown) + len(text) + 3 < line.width:
                x = line.put(x, shown, self.look.style("accent", bold=True))
                x = line.put(x + 1, clip(text, 20), self.look.dim + Style()) + 2
        self.query_one("#footer", Bar).put(line)

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────

    def on_key(self, event: events.Key) -> None:
        """The quiz's keys come first, but for a line that is typed and a letter that is awaited."""
        line = self.query_one(CommandLine)
        character = event.character or ""
        question = self.quiz.question
        if line.is_open or self._waiting_for or question is None or self.mode == "small":
            super().on_key(event)
            return
        if character and character in LETTERS[: len(question.choices)]:
            self.answer(LETTERS.index(character))
        elif character in (*LETTERS, "x"):
            self.answer(None) if character == "x" else self._say(f"there is no choice {character}")
        elif character == "=" and not self.quiz.is_answered:
            line.ask("=")
        elif event.key == "space":
            self.go_on()
        else:
            super().on_key(event)
            return
        event.stop()
        event.prevent_default()

    def on_quiz_panel_chosen(self, message: QuizPanel.Chosen) -> None:
        self.answer(message.choice)

    def _typed(self, kind: str, text: str | None) -> None:
        if kind != "=":
            super()._typed(kind, text)
        elif text is not None:
            choice = self.quiz.choice_of(text)
            if choice is None:
                self._say(f"none of the choices says {text.strip()!r}")
            else:
                self.answer(choice)

    def answer(self, choice: int | None) -> None:
        """Take the answer, and show the step."""
        question = self.quiz.question
        if question is None or self.quiz.is_answered:
            self._say("space goes on to the next question")
            return
        self.quiz.answer(choice)
        if question.request_id is not None:
            self.session.selection = Selection(question.request_id)
        self._show_step(question.index)

    def go_on(self) -> None:
        """To the step before the next question; after the last one, everything may be seen."""
        if not self.quiz.is_answered:
            self._say("a letter answers; x shows the answer")
            return
        self.quiz.advance()
        question = self.quiz.question
        if question is not None:
            self._show_step(question.index - 1)
        else:
            self.curtain.open_to(None)
            self._redraw()

    def _show_step(self, index: int) -> None:
        self.curtain.open_to(index + 1)
        self.session.work(CAUGHT_UP)
        self.session.go(index)
        self._redraw()

    def _redraw(self) -> None:
        self.session.message = ""
        self.arrange_panels()
        self.ask_for_drawing()

    def _say(self, message: str) -> None:
        self.session.message = message
        self.ask_for_drawing()

    def do_help(self) -> None:
        self.app.push_screen(HelpScreen(self.quiz_panel.drawing, self.look))


class QuizApp(Visualizer):
    """Asks the questions of a quiz."""

    def __init__(self, session: Session, quiz: Quiz, curtain: Curtain, look: str = "dark") -> None:
        super().__init__(session, look)
        self.quiz = quiz
        self._curtain = curtain

    def main_screen(self) -> Screen[None]:
        return QuizScreen(self.session, self.look, self.quiz, self._curtain)
