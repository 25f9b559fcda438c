"""Steps that are chosen before the ones before them have their tokens, as pipeline stages need them."""

from __future__ import annotations

from types import SimpleNamespace

from tests.adapters.fake_vllm import FakeRequest
from tinycb.adapters.events import Arrival, Notes, Rules
from tinycb.adapters.transcript import Transcript

RULES = Rules(4, 16, 4, 64, prefix_caching=False, reserve_full_prompt=True)


class Kept(list):
    def write(self, record):
        self.append(record)

    def close(self):
        pass


def output(scheduled, computed, new=()):
    blocks = {name: ([number],) for number, name in enumerate(new, start=1)}
    admitted = [
        SimpleNamespace(req_id=name, block_ids=blocks[name], num_computed_tokens=computed[name])
        for name in new
    ]
    others = [name for name in scheduled if name not in new]
    cached = SimpleNamespace(
        req_ids=others,
        new_block_ids=[None] * len(others),
        num_computed_tokens=[computed[name] for name in others],
        resumed_req_ids=set(),
    )
    return SimpleNamespace(
        num_scheduled_tokens=scheduled, scheduled_new_reqs=admitted, scheduled_cached_reqs=cached
    )


def answer(name, token):
    return SimpleNamespace(request_id=name, new_token_ids=[token], finish_reason=None, stop_reason=None)


def test_who_is_under_way_in_an_earlier_step_waits_for_it_and_a_step_without_anybody_is_none():
    records = Kept()
    transcript = Transcript(records, RULES, num_blocks=8)
    a, b = FakeRequest("a", [1, 2, 3], 9), FakeRequest("b", [4, 5], 9)

    def take(scheduled, computed, at, came, *, running, notes=None, tokens=()):
        chosen = output(scheduled, computed, list(notes.tables if notes else ()))
        result = {0: SimpleNamespace(outputs=[answer(*pair) for pair in tokens])}
        transcript.take(((chosen, running, 6, notes, at, at + 0.1), result, came, came + 0.1, 0.0, ()))

    first = Notes(events=[Arrival(a)], tables={"a": [1]})
    second = Notes(events=[Arrival(b)], tables={"b": [2]})
    take({"a": 3}, {"a": 0}, 1.0, 5.0, running=[a], notes=first, tokens=[("a", 7)])
    take({"b": 2}, {"b": 0}, 2.0, 6.0, running=[a, b], notes=second, tokens=[("b", 8)])
    take({}, {}, 3.0, 6.5, running=[a, b])
    take({"a": 1}, {"a": 3}, 5.5, 8.0, running=[a, b], tokens=[("a", 9)])
    take({"b": 1}, {"b": 2}, 8.5, 9.0, running=[a, b], tokens=[("b", 9)])

    assert [record.scheduled for record in records] == [{"a": 3}, {"b": 2}, {"a": 1}, {"b": 1}]
    waits = [
        [(d.request_id, str(d.reason), dict(d.numbers)) for d in r.decisions if d.action == "wait"]
        for r in records
    ]
    assert waits == [
        [],
        [("a", "in_flight", {"step": 0})],
        [("b", "in_flight", {"step": 1})],
        [("a", "not_stated", {})],
    ]
    assert any("its tokens of step 0 are still being computed" in d.sentence for d in records[1].decisions)
