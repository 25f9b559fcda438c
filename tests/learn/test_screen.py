"""What a reader sees of a link, and which guesses count as right."""

import io

import pytest
from rich.console import Console

from tinycb.learn.files import tutorials
from tinycb.learn.questions import Prediction
from tinycb.learn.screen import Screen


def screen(is_terminal: bool) -> tuple[Screen, io.StringIO]:
    made, written = Screen(), io.StringIO()
    made._console = Console(file=written, force_terminal=is_terminal, width=80, _environ={})
    return made, written


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_link_is_its_words_and_in_a_terminal_it_opens_the_file(is_terminal):
    shown, written = screen(is_terminal)
    shown.prose("Read [the start](README.md) and [vLLM](https://docs.vllm.ai).")
    text = written.getvalue()
    assert "](" not in text
    assert ((tutorials() / "README.md").as_uri() in text) == is_terminal
    assert ("https://docs.vllm.ai" in text) == is_terminal


@pytest.mark.parametrize(
    ("guess", "is_right"), [("1,232 rows", True), ("1232", True), ("1231", False), ("a", False), ("", False)]
)
def test_of_a_number_the_first_word_counts_and_commas_do_not(guess, is_right):
    shown, written = screen(False)
    Prediction("How many?", (), guess, shown).see("1232", "because")
    assert ("as you said" in written.getvalue()) == is_right
