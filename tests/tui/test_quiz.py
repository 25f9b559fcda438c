"""The quiz on the screen: what is known and no more, every key, the score, small terminals."""

from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest

from tests.tui.harness import running
from tinycb.cli import main
from tinycb.commands.tui_quiz import make_quiz, quiz_app, score_line
from tinycb.tracing import TraceReader
from tinycb.tui.quiz import Curtain, Quiz
from tinycb.tui.quiz_screen import QuizScreen, arrange_quiz
from tinycb.tui.session import Session

VLLM = Path(str(files("tinycb") / "data" / "vllm_preemption.jsonl"))


@asynccontextmanager
async def asked(path: Path, size: tuple[int, int] = (80, 24)):
    with TraceReader(path) as reader:
        async with running(quiz_app(reader, "dark"), size) as driver:
            assert isinstance(driver.screen, QuizScreen)
            yield driver, driver.screen.quiz


def right(quiz: Quiz) -> str:
    assert quiz.question is not None
    return "abcd"[quiz.question.answer]


def wrong(quiz: Quiz) -> str:
    return next(letter for letter in "abc" if letter != right(quiz))


def test_a_curtain_hides_what_comes_later(tour: Path) -> None:
    with TraceReader(tour) as reader:
        curtain = Curtain(reader, 3)
        session = Session(curtain)
        assert (len(curtain), curtain.steps, session.num_steps) == (3, range(3), 3)
        assert [record.step for record in curtain] == [0, 1, 2]
        for look in (curtain.__getitem__, curtain.state):
            with pytest.raises(IndexError):
                look(3)
        session.go_to_end()
        session.to_event(1)
        assert session.index == 2
        assert session.history.num_steps == 3
        curtain.open_to(9)
        session.work(5)
        assert session.history.num_steps == session.num_steps == 9
        curtain.open_to(None)
        assert len(curtain) == len(reader)


def test_answers_are_counted_once_and_typed_ones_are_understood(tour: Path) -> None:
    with TraceReader(tour) as reader:
        quiz = Quiz(make_quiz(reader))
    quiz.advance()
    assert quiz.at == 0, "not before it is answered"
    assert quiz.choice_of(f" {right(quiz)} ") == quiz.question.answer
    for question in quiz.questions:
        for number, choice in enumerate(question.choices):
            assert quiz.choice_of(choice) == number, "B is the request, b the letter"
            assert quiz.choice_of(" , ".join(reversed(choice.split(", ")))) == number
            if isinstance(question.values[number], int):
                assert quiz.choice_of(str(question.values[number])) == number
        for nothing in ("", "zz", "no such", "999"):
            assert quiz.choice_of(nothing) is None
        quiz.answer(question.answer if quiz.at % 2 else None)
        quiz.answer(question.answer)
        quiz.advance()
    assert quiz.question is None
    assert quiz.score == "6 of 12 right"
    assert quiz.missed == quiz.questions[::2]
    quiz.answer(0)
    quiz.advance()
    assert (quiz.at, len(quiz.chosen)) == (12, 12)


def test_the_step_is_seen_after_the_answer_with_its_reason(drive, tour: Path) -> None:
    async def play() -> None:
        async with asked(tour) as (d, quiz):
            first = quiz.question
            assert d.session.num_steps == first.index
            assert first.text in d.text
            assert all(line in d.text for line in first.known)
            assert all(reason[:40] not in d.text for reason in first.reasons)
            await d.press(right(quiz))
            assert d.session.index == first.index == d.session.num_steps - 1
            assert f"✓ {right(quiz)}" in d.text
            assert "Right.  1 of 1 right" in d.text
            assert first.reasons[0][:40] in d.text
            assert d.session.selection.request_id == first.request_id
            await d.press(wrong(quiz))
            assert quiz.chosen == [first.answer], "the first answer counts"
            await d.press("space")
            second = quiz.question
            assert second.text in d.text
            assert d.session.index == second.index - 1 == d.session.num_steps - 1
            await d.press(wrong(quiz))
            assert f"✗ {wrong(quiz)}" in d.text
            assert f"No: it is {right(quiz)}.  1 of 2 right" in d.text

    drive(play())


def test_a_whole_quiz_to_its_score(drive, tour: Path) -> None:
    async def play() -> None:
        async with asked(tour, (120, 50)) as (d, quiz):
            while quiz.question is not None:
                known = quiz.question.index
                assert d.session.num_steps == known
                assert f"question {quiz.at + 1} of 12 · step {quiz.question.step}" in d.text
                await d.press("x" if quiz.at == 4 else right(quiz))
                assert ("The answer." if quiz.at == 4 else "Right.") in d.text
                await d.press("space")
            assert "That was the quiz: 11 of 12 right." in d.text
            assert quiz.questions[4].text in d.text
            assert d.session.num_steps == len(d.session.source) == 30
            await d.press("end")
            assert d.session.index == 29
            await d.press("b")
            assert "break at:" in d.text, "the quiz's keys are free again"
        assert score_line(quiz) == "tinycb tui --quiz: 11 of 12 right, of 12 questions"

    drive(play())


def test_every_key_of_the_quiz_and_those_that_look_around(drive, tour: Path) -> None:
    async def play() -> None:
        async with asked(tour) as (d, quiz):
            await d.press("space")
            assert d.message == "a letter answers; x shows the answer"
            await d.press("equals_sign")
            await d.type("zebra")
            await d.press("enter")
            assert d.message == "none of the choices says 'zebra'"
            await d.press("equals_sign", "escape")
            assert not quiz.is_answered
            await d.press("equals_sign")
            await d.type(quiz.question.choices[quiz.question.answer])
            await d.press("enter")
            assert quiz.num_right == 1
            await d.press("equals_sign", "x")
            assert d.message == "space goes on to the next question"
            await d.press("space")
            while len(quiz.question.choices) == 4:
                await d.press("x", "space")
            await d.press("d")
            assert d.message == "there is no choice d"
            here = d.session.index
            await d.press("l", "n", "end", "right")
            assert d.session.index == here, "there is nothing after it yet"
            await d.press("home")
            assert d.session.index == 0
            await d.type(":1")
            await d.press("enter")
            assert d.session.index == 1
            await d.press("m", "a", "end", "apostrophe", "a")
            assert d.session.index == 1, "a is a mark's letter where one is awaited"
            assert not quiz.is_answered
            for number, name in enumerate(d.screen.panels, start=1):
                await d.press(str(number))
                assert d.screen.panels[name].display
                assert quiz.question.text in d.text
            await d.press("enter", "up")
            assert d.screen.current.inside
            await d.press("escape", "tab", "question_mark")
            assert "x shows it" in "".join(str(w.render()) for w in d.app.screen.query("Static"))
            await d.press("escape", right(quiz))
            assert quiz.is_answered
            await d.pilot.press("q")
            assert d.app.return_code == 0

    drive(play())


def test_a_click_on_a_choice_answers(drive, tour: Path) -> None:
    async def play() -> None:
        async with asked(tour) as (d, quiz):
            panel = d.screen.quiz_panel
            await d.pilot.click(panel, offset=(8, 1))
            await d.settle()
            assert not quiz.is_answered, "what is known is no choice"
            row = next(y for y in range(20) if panel.drawing.choice_at(y, panel.top) == quiz.question.answer)
            await d.pilot.click(panel, offset=(8, row + 1))
            await d.settle()
            assert quiz.num_right == 1

    drive(play())


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (100, 30), (120, 40), (160, 52)])
def test_question_and_choices_are_in_sight_in_every_size(drive, size: tuple[int, int]) -> None:
    async def play() -> None:
        async with asked(VLLM, size) as (d, quiz):
            for _ in range(4):
                for letter, choice in zip("abcd", quiz.question.choices, strict=False):
                    assert f"{letter}  {choice}" in d.text
                assert quiz.question.text[:30] in d.text
                await d.press(wrong(quiz), "space")
            await d.pilot.resize_terminal(40, 10)
            await d.settle()
            assert "a quiz needs at least 60 × 18" in " ".join(d.text.split())
            await d.press("a")
            assert not quiz.is_answered, "nothing is answered that is not seen"

    drive(play())


def test_boxes_fill_the_screen_and_do_not_overlap() -> None:
    for width in (60, 80, 109, 110, 200):
        for height in (18, 24, 33, 46, 60, 90):
            for tab in ("timeline", "blocks", "place"):
                arrangement = arrange_quiz(width, height, tab, 5, 14)
                cells: set[tuple[int, int]] = set()
                for box in arrangement.boxes.values():
                    mine = {
                        (x, y)
                        for x in range(box.x, box.x + box.width)
                        for y in range(box.y, box.y + box.height)
                    }
                    assert not mine & cells
                    assert max(y for _, y in mine) < height - 1
                    cells |= mine
                assert "quiz" in arrangement.boxes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--compare", "static,chunked"], "leave out --compare"),
        (["--model", "tiny-random"], "leave out --model"),
        (["--step", "3"], "leave out --step"),
        ([], "tinycb show prints a step as plain text, with --quiz the questions"),
        (["no.jsonl"], "the screen needs a terminal"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments: list[str], says: str) -> None:
    assert main(["tui", "--quiz", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert says in captured.err


def test_the_quiz_as_plain_text_has_the_answers_below(capsys, tour: Path) -> None:
    assert main(["show", str(tour), "--quiz", "--width", "80"]) == 0
    questions, answers = capsys.readouterr().out.split("\nanswers\n")
    with TraceReader(tour) as reader:
        made = make_quiz(reader)
    for number, question in enumerate(made, start=1):
        assert f"{number}. step {question.step}" in questions
        assert f"{number:>2}. {'abcd'[question.answer]}  {question.choices[question.answer]}\n" in answers
    assert made[0].reasons[0][:40] in answers
    assert made[0].reasons[0][:40] not in questions
    assert max(map(len, questions.splitlines())) <= 80
    assert main(["show", str(tour), "--quiz", "--panel", "why"]) == 2
    assert "--quiz prints questions, and no panel" in capsys.readouterr().err


def test_a_trace_without_a_question_or_that_is_broken_is_one_line(tmp_path: Path, tour: Path) -> None:
    from tinycb.commands.errors import CommandError

    lines = tour.read_text().splitlines(keepends=True)
    dull = tmp_path / "dull.jsonl"
    dull.write_text("".join(lines[:2]))
    with TraceReader(dull) as reader, pytest.raises(CommandError, match=r"in dull\.jsonl nothing happens"):
        make_quiz(reader)
    pytest.importorskip("textual_serve", reason="textual-serve is not installed")
    assert main(["tui", "--quiz", "--web", str(dull)]) == 2, "said before a page is served"
    broken = tmp_path / "broken.jsonl"
    broken.write_text("".join([*lines[:6], '{"step": 5, "scheduled": {"Z": 3}}\n', *lines[7:]]))
    with TraceReader(broken) as reader, pytest.raises(CommandError, match=r"broken\.jsonl"):
        make_quiz(reader)
