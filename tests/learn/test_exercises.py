"""Each exercise: its solution passes, its blank and its typical wrong answers fail, in words that say why."""

import ast
from pathlib import Path

import pytest

from tests.learn.harness import EXERCISES
from tinycb.learn.check_process import judge, load_file

WRONG = Path(__file__).parent / "wrong"
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


def wrong_answers(exercise) -> list[Path]:
    return sorted(WRONG.glob(f"{exercise.name}__*.py"))


@each
def test_the_solution_passes(exercise):
    assert judge(load_file(exercise.check, "check"), exercise.solution) == ("passed", "passed")


@each
def test_the_blank_says_that_nothing_is_filled_in(exercise):
    kind, line = judge(load_file(exercise.check, "check"), exercise.blank)
    assert kind == "blank"
    assert line.startswith("nothing is filled in yet: ")


@each
def test_typical_wrong_answers_fail_and_the_property_is_named(exercise):
    check = load_file(exercise.check, "check")
    for path in wrong_answers(exercise):
        expected = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        kind, line = judge(check, path)
        assert kind == "wrong", f"{path.name}: {line}"
        assert expected in line, path.name


@each
def test_an_exercise_has_a_task_hints_and_two_wrong_answers(exercise):
    assert len(ast.get_docstring(ast.parse(exercise.blank.read_text("utf-8")))) > 80
    assert len(load_file(exercise.check, "check").HINTS) >= 2
    assert len(wrong_answers(exercise)) >= 2


def test_every_wrong_answer_is_to_an_exercise_that_there_is():
    names = {exercise.name for exercise in EXERCISES}
    assert {path.stem.partition("__")[0] for path in WRONG.glob("*.py")} <= names
