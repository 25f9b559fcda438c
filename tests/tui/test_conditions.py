"""Conditions: what they mean, and what is said of those that mean nothing."""

from pathlib import Path

import pytest

from tests.tui.harness import whole
from tinycb.tracing import TraceReader
from tinycb.tui.conditions import ConditionError, parse
from tinycb.tui.session import Session


@pytest.fixture(scope="module")
def steps(tour: Path):
    with TraceReader(tour) as reader:
        session = whole(Session(reader))

        def holding(text: str) -> list[int]:
            condition = parse(text)
            return [i for i in range(len(reader)) if condition.holds(reader, session.history, i)]

        yield holding, list(reader), reader


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("free<2", lambda r: r.num_free_blocks < 2),
        ("free <= 2 and waiting > 0", lambda r: r.num_free_blocks <= 2 and r.num_waiting > 0),
        ("used>=14", lambda r: 15 - r.num_free_blocks >= 14),
        ("preempted", lambda r: bool(r.preempted)),
        ("not preempted", lambda r: not r.preempted),
        ("preempted or refused", lambda r: bool(r.preempted or r.refused)),
        (
            "(preempted or refused) and waiting>1",
            lambda r: bool(r.preempted or r.refused) and r.num_waiting > 1,
        ),
        ("step==12", lambda r: r.step == 12),
        ("step=12", lambda r: r.step == 12),
        ("step!=12", lambda r: r.step != 12),
        ("A.decode", lambda r: r.scheduled.get("A") == 1),
        ("B.prefill", lambda r: r.scheduled.get("B", 0) > 1),
        ("D.preempted", lambda r: "D" in r.preempted),
        ("B.finished", lambda r: "B" in r.finished),
        ("E.admitted", lambda r: "E" in r.admitted),
        ("F.refused", lambda r: "F" in r.refused),
        ("tokens>=8", lambda r: sum(r.scheduled.values()) >= 8),
        ("recomputed>0", lambda r: r.num_recomputed > 0),
        ("B.runs", lambda r: "B" in r.scheduled),
        ("hit", lambda r: bool(r.prefix_hits)),
    ],
)
def test_meaning(steps, text: str, meaning) -> None:
    holding, records, _ = steps
    expected = [record.step for record in records if meaning(record)]
    assert expected
    assert holding(text) == expected


def test_blocks_and_lengths(steps) -> None:
    holding, records, reader = steps
    states = [reader.state(i) for i in range(len(reader))]
    assert holding("refcount>1") == [
        i for i, state in enumerate(states) if any(block.ref_count > 1 for block in state.blocks)
    ]
    assert holding("B.blocks==6") == [
        i for i, s in enumerate(states) if "B" in s.requests and len(s.requests["B"].block_table) == 6
    ]
    assert holding("B.computed==14") == [
        i for i, s in enumerate(states) if "B" in s.requests and s.requests["B"].num_computed_tokens == 14
    ]
    assert holding("C.output==3")[0] == [r.step for r in records if "C" in r.sampled][2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a condition is missing"),
        ("free", "compare it, as in free>1"),
        ("free<", "after free< comes an integer, not 'nothing'"),
        ("free<two", "after free< comes an integer, not 'two'"),
        ("fre<2", "'fre' is no number; there are free,"),
        ("nonsense", "'nonsense' is not known; there are preempted,"),
        ("A.sings", "'sings' is not known of a request"),
        ("preempted free<2", "one word too many"),
        ("(preempted", "a ( is not closed"),
        ("preempted and", "a condition is missing"),
        ("free<2)", "')' is one word too many"),
        ("__import__('os')", "is not known"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(ConditionError) as error:
        parse(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_request_never_does_anything(steps) -> None:
    holding, *_ = steps
    assert holding("Q.decode") == []
    assert holding("Q.output>0") == []
