"""Questions made from random runs: one choice is right, it is what the record says, and no other is true."""

from __future__ import annotations

import tempfile
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.tracing.harness import configs, ops, run
from tinycb.scheduling import Reason
from tinycb.tracing import TraceReader
from tinycb.tracing.quiz import QUESTIONS, questions_about, quiz
from tinycb.tracing.quiz_kinds import KINDS
from tinycb.workloads.tour import write_tour

VLLM = Path(str(files("tinycb") / "data" / "vllm_preemption.jsonl"))


def truth(question, record, held):
    """The right answer, worked out from the record alone. held: blocks in tables before the step."""
    name = question.request_id
    return {
        "tokens": lambda: record.scheduled[name],
        "hit": lambda: record.prefix_hits[name],
        "free": lambda: record.num_free_blocks,
        "padding": lambda: sum(record.scheduled.values()) + record.num_padded,
        "block": lambda: record.blocks_allocated[name][0],
        "runs": lambda: frozenset(record.scheduled),
        "admitted": lambda: frozenset(record.admitted),
        "preempted": lambda: frozenset(record.preempted),
        "new blocks": lambda: frozenset(n for n, blocks in record.blocks_allocated.items() if blocks),
        "samples": lambda: frozenset(record.sampled),
        "finished": lambda: frozenset(record.finished),
        "stopped": lambda: next(
            d.reason for d in record.decisions if d.request_id == name and d.action == "wait"
        ),
    }[question.kind]()


def is_true_reason(reason, question, record, reader):
    """Whether a reason why the head waits holds of this step, whoever said it."""
    config = reader.header["config"]
    if reason is Reason.NO_FREE_BLOCKS:
        decision = next(
            d for d in record.decisions if d.request_id == question.request_id and d.action == "wait"
        )
        needs = int(decision.numbers.get("needs", 0))  # 0: it did not come to that
        return needs > record.num_free_blocks
    if reason is Reason.BUDGET_SPENT:
        return (
            config["batching"] == "chunked"
            and sum(record.scheduled.values()) >= config["max_num_batched_tokens"]
        )
    if reason is Reason.MAX_NUM_SEQS:
        return len(record.running) >= config["max_num_seqs"]
    if reason is Reason.AFTER_PREEMPTION:
        return bool(record.preempted)
    return config["batching"] == "static"


def check(question, reader):
    record = reader[question.index]
    assert question.step == record.step
    assert 3 <= len(question.choices) == len(question.values) == len(set(question.choices)) <= 4
    before = reader.state(question.index - 1).requests
    held = {block for request in before.values() for block in request.block_table}
    right = truth(question, record, held)
    assert question.values[question.answer] == right
    assert [value == right for value in question.values].count(True) == 1
    for number, value in enumerate(question.values):
        if question.kind == "stopped":
            assert is_true_reason(value, question, record, reader) == (number == question.answer)
        elif question.kind == "block" and number != question.answer:
            assert value in held
            assert question.request_id not in record.prefix_hits
            assert not any(value in record.blocks_freed.get(name, ()) for name in record.preempted)
        elif isinstance(value, int):
            assert value >= 0
    assert question.known
    assert question.reasons
    assert all(
        "\n" not in line for line in (*question.known, *question.choices, *question.reasons, question.text)
    )


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(configs, ops)
def test_exactly_one_choice_is_right_and_it_is_the_records(config, what):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.jsonl")
        run(path, config, what)
        with TraceReader(path) as reader:
            for index in range(len(reader)):
                for question in questions_about(reader, index):
                    check(question, reader)
            asked = quiz(reader)
            assert len({question.index for question in asked}) == len(asked) <= QUESTIONS
            assert all(question in questions_about(reader, question.index) for question in asked)
            assert asked == sorted(asked, key=lambda question: question.index)


@pytest.mark.parametrize("batching", ["static", "continuous", "chunked"])
def test_a_quiz_has_something_of_every_kind_that_happens(tmp_path, batching):
    with TraceReader(write_tour(tmp_path, batching)) as reader:
        asked = quiz(reader)
        possible = {q.kind for index in range(len(reader)) for q in questions_about(reader, index)}
    kinds = Counter(question.kind for question in asked)
    assert len(asked) >= 6
    assert len(possible) >= 6
    assert len(kinds) >= min(len(possible), len(asked)) - 2, (kinds, possible)
    assert max(kinds.values()) <= 3


def test_every_kind_is_asked_somewhere(tmp_path):
    asked = set()
    for batching in ("static", "continuous", "chunked"):
        with TraceReader(write_tour(tmp_path, batching)) as reader:
            asked |= {q.kind for index in range(len(reader)) for q in questions_about(reader, index)}
    assert asked == set(KINDS)


def test_vllms_trace_makes_a_quiz_too():
    with TraceReader(VLLM) as reader:
        asked = quiz(reader)
        for question in asked:
            check(question, reader)
        assert {"preempted", "stopped", "tokens", "new blocks"} <= {question.kind for question in asked}
        assert quiz(reader) == asked, "the same trace gives the same quiz"


def test_nothing_is_asked_of_the_first_step_nor_of_a_run_in_which_nothing_happens(tmp_path):
    path = tmp_path / "dull.jsonl"
    run(path, {"batching": "chunked", "block_size": 4, "num_blocks": 9}, [("add", 0, 3, 3)])
    with TraceReader(path) as reader:
        assert questions_about(reader, 0) == []
        assert all(question.kind == "finished" for question in quiz(reader))


def test_what_is_known_does_not_tell_the_answer(tmp_path):
    """The lines of what is known are those of the state before: no later record changes them."""
    with TraceReader(write_tour(tmp_path, "chunked")) as reader:
        for question in quiz(reader):
            before, record = reader.state(question.index - 1), reader[question.index]
            gone = set(record.aborted)
            text = " ".join(question.known)
            for name in before.running:
                assert name in gone or f"{name} " in text
            held = {b for n, r in before.requests.items() if n not in gone for b in r.block_table}
            assert f"free: {before.num_blocks - len(held)} of {before.num_blocks} blocks" in text
