"""The process that runs a subject: whatever becomes of it, the caller gets words, and a new process."""

import os

import pytest

from tests.proofs import faulty_kernels
from tinycb.proofs import Counterexample, KVLayout, RaggedBatch, worker
from tinycb.proofs.subjects import CannotLoad
from tinycb.proofs.worker import Worker

AGREES = "agrees_with_one_request_alone"
ONE = RaggedBatch(((1, 2),), layout=KVLayout())
TWO = RaggedBatch(((1, 2), (1, 1)), layout=KVLayout())


def paged(name: str) -> Worker:
    return Worker(f"{faulty_kernels.__file__}:paged.{name}", "paged")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "raises",
            r"it raised RuntimeError in faulty_kernels.py, line \d+: no more than one request",
        ),
        ("crashes", r"the process died with SIGSEGV in faulty_kernels.py, line \d+"),
        ("exits", "the process died with SIGKILL"),
        ("returns_wrong_shape", r"it returned shape \(2, 16\) of torch.float32, not q's \(2, 1, 16\)"),
        ("returns_nothing", r"it returned NoneType, expected a tensor of shape \(2, 1, 16\)"),
    ],
)
def test_what_a_subject_does_becomes_words(name, words):
    with paged(name) as process:
        for _ in range(2):  # the same answer for the same example, whether or not it was run again
            with pytest.raises(Counterexample, match=words):
                process.check(AGREES, TWO)
        if not name.startswith("returns"):
            process.check(AGREES, ONE)


def test_a_process_that_hangs_is_killed(monkeypatch):
    for name in ("FIRST_SECONDS", "EXAMPLE_SECONDS", "SHRINK_SECONDS"):
        monkeypatch.setattr(worker, name, 1.0)
    with paged("hangs") as process:
        monkeypatch.setattr(worker, "FIRST_SECONDS", 30.0)
        process.check(AGREES, ONE)
        pid = process._process.pid
        with pytest.raises(Counterexample, match="it did not return within 1 s"):
            process.check(AGREES, TWO)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_after_a_few_deaths_no_smaller_example_is_looked_for(monkeypatch):
    monkeypatch.setattr(worker, "DEATHS", 1)
    with paged("exits") as process:
        with pytest.raises(Counterexample):
            process.check(AGREES, TWO)
        process.check(AGREES, RaggedBatch(((1, 2), (1, 9)), layout=KVLayout()))  # not run any more


def test_what_a_subject_prints_does_not_reach_the_answers(capfd):
    with paged("prints") as process:
        process.check(AGREES, TWO)
    assert capfd.readouterr() == ("", "")


def test_a_module_that_ends_the_process_cannot_be_loaded(tmp_path):
    for text, words in (
        ("import os; os._exit(3)", "the process ended itself with exit code 3"),
        ("raise SystemExit('no')", "cannot import .*bad.py: SystemExit: no"),
        ("def f(:", "SyntaxError"),
    ):
        (tmp_path / "bad.py").write_text(text)
        with Worker(f"{tmp_path}/bad.py:f", "paged") as process, pytest.raises(CannotLoad, match=words):
            process.start()
